// %3 = aten::linear %0 %1 %2; %4 = aten::gelu %3 "none"
//   ->   layer %0 %1 %2 gelu none -> %4
//
// oneDNN applies the activation while a block of the result is in cache. It is left to a kernel
// where that has more to do with the result: then it costs no pass over memory either.

#include "opt/activation.h"
#include "opt/fusible.h"
#include "opt/linear.h"
#include "opt/passes.h"

namespace glowplug::opt {
namespace {

bool joinsKernels(const Graph& graph, ValueId value) {
  for (const size_t user : graph.users[value.index()]) {
    common::Reason reason;
    if (iterationOf(graph, graph.nodes[user], reason)) return true;
  }
  return false;
}

void takeActivation(Graph& graph, Layer& layer) {
  const std::optional<size_t> next = graph.onlyUser(layer.result);
  if (!next || !graph.isCalm(layer.members[0], *next)) return;
  const Node& node = graph.nodes[*next];
  if (node.state != Node::State::Kept || node.barrier || node.results.size() != 1) return;
  const ValueId made = node.results[0];
  const TensorType* type = graph.type(made);
  if (type == nullptr || type->grad || made == layer.result) return;
  if (!sameLayout(*type, *graph.type(layer.result)) || type->dtype != "f32") return;
  const std::optional<Activation> found = activationOf(node);
  if (!found || (found->name != "gelu" && found->name != "swish")) return;
  if (joinsKernels(graph, made)) return;
  layer.activation = found->name;
  layer.algorithm = found->algorithm;
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
