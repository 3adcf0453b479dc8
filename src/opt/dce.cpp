// %1 = aten::exp %0, of which nobody hears   ->   removed
//
// Only operators of operators.def: others may be there for what they raise.

#include "opt/operators.h"
#include "opt/passes.h"

namespace glowplug::opt {
namespace {

bool isDead(const Graph& graph, const Node& node) {
  if (node.barrier || node.state != Node::State::Kept || node.results.empty()) return false;
  if (classOf(node.op) != OperatorClass::Pointwise && classOf(node.op) != OperatorClass::Rows) {
    return false;
  }
  for (const ValueId id : node.results) {
    if (!graph.type(id) || graph.escapes[id.index()] || !graph.users[id.index()].empty()) {
      return false;
    }
  }
  return true;
}

}  // namespace

void removeDead(Graph& graph) {
  // Backwards, so that what only a dead operator uses is dead too.
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (!isDead(graph, graph.nodes[n])) continue;
    graph.nodes[n].state = Node::State::Removed;
    visitValues(graph.nodes[n], [&](ValueId id) { std::erase(graph.users[id.index()], n); });
  }
  graph.findUses();
}

}  // namespace glowplug::opt
