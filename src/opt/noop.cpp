// %1 = aten::dropout %0 0.1 False, recorded as %0   ->   removed
//
// An operator that gave its operand itself does so again under the same guards, unless data or
// torch's state decide: data-dependent operands have no type, and a change of state is a barrier.

#include "opt/operators.h"
#include "opt/passes.h"

namespace glowplug::opt {

void removeIdentities(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.barrier || classOf(node.op) != OperatorClass::Identity) continue;
    const bool same = node.results.size() == 1 && !node.operands.empty() &&
                      node.operands[0].kind == Operand::Kind::Value &&
                      node.operands[0].value == node.results[0];
    if (same && graph.type(node.results[0])) node.state = Node::State::Removed;
  }
  graph.findUses();
}

}  // namespace glowplug::opt
