// %3 = aten::linear %0 %1 %2; %4 = aten::gelu %3 "none"
//   ->   layer %0 %1 %2 gelu none -> %4
//
// oneDNN applies the activation while a block of the result is in cache. It is left to a kernel
// where that has more to do with the result: then it costs no pass over memory either.

#include "opt/fusible.h"
#include "opt/linear.h"
#include "opt/operators.h"
#include "opt/passes.h"

namespace glowplug::opt {
namespace {

using Kind = Operand::Kind;

bool isCalm(const Graph& graph, size_t from, size_t to) {
  for (size_t n = from + 1; n < to; ++n) {
    const Node& node = graph.nodes[n];
    if (node.barrier && node.state != Node::State::Packed) return false;
  }
  return true;
}

// The only operator that sees a value that nobody else needs.
std::optional<size_t> onlyUser(const Graph& graph, ValueId value) {
  const auto& users = graph.users[value.index()];
  if (users.size() != 1 || graph.escapes[value.index()]) return {};
  return users[0];
}

bool readActivation(const Node& node, Layer& layer) {
  const auto& operands = node.operands;
  if (node.op == "aten::silu" && operands.size() == 1) {
    layer.activation = "swish";
    return true;
  }
  const bool gelu = node.op == "aten::gelu" && operands.size() == 2 &&
                    operands[1].kind == Kind::Text &&
                    (operands[1].text == "none" || operands[1].text == "tanh");
  if (!gelu) return false;
  layer.activation = "gelu";
  layer.algorithm = operands[1].text;
  return true;
}

bool joinsKernels(const Graph& graph, ValueId value) {
  for (const size_t user : graph.users[value.index()]) {
    common::Reason reason;
    if (iterationOf(graph, graph.nodes[user], reason)) return true;
  }
  return false;
}

void takeActivation(Graph& graph, Layer& layer) {
  const std::optional<size_t> next = onlyUser(graph, layer.result);
  if (!next || !isCalm(graph, layer.members[0], *next)) return;
  const Node& node = graph.nodes[*next];
  if (node.state != Node::State::Kept || node.barrier || node.results.size() != 1) return;
  const ValueId made = node.results[0];
  const TensorType* type = graph.type(made);
  if (type == nullptr || type->grad || made == layer.result) return;
  if (!sameLayout(*type, *graph.type(layer.result)) || type->dtype != "f32") return;
  if (joinsKernels(graph, made) || !readActivation(node, layer)) return;
  layer.members.push_back(*next);
  layer.result = made;
}

}  // namespace

void packLinears(Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.state != Node::State::Kept) continue;
    std::optional<common::Reason> reason;
    const std::optional<Linear> linear = linearOf(graph, node, reason);
    if (!linear || !graph.frozen[linear->weight.index()]) continue;
    Layer layer;
    layer.members = {n};
    layer.result = node.results[0];
    takeActivation(graph, layer);
    for (const size_t member : layer.members) {
      graph.nodes[member].state = Node::State::Layer;
      graph.nodes[member].group = graph.layers.size();
    }
    graph.layers.push_back(std::move(layer));
  }
}

}  // namespace glowplug::opt
