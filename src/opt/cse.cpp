// kernel: %1 = aten::exp %0; %2 = aten::exp %0; %3 = aten::add %1 %2 1
//   ->    %1 = aten::exp %0; %3 = aten::add %1 %1 1
//
// Inside a kernel, where a value is a register. Between operators the two results are two tensors,
// and whether they are one or two can be seen from outside.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "opt/passes.h"

namespace glowplug::opt {
namespace {

std::string keyOf(const Graph& graph, const Node& node) {
  std::string key = node.op;
  for (const Operand& operand : node.operands) {
    key += fmt::format("|{} {} {} {:a} {}", static_cast<int>(operand.kind), operand.value.value,
                       operand.integer, operand.real, operand.text);
    for (const int64_t number : operand.integers) key += fmt::format(" {}", number);
  }
  const TensorType& type = *graph.type(node.results[0]);
  key += "|" + type.dtype;
  for (const int64_t size : type.sizes) key += fmt::format(" {}", size);
  return key;
}

void mergeIn(Graph& graph, Group& group) {
  std::map<std::string, ValueId> seen;
  std::vector<size_t> kept;
  for (const size_t n : group.nodes) {
    Node& node = graph.nodes[n];
    const auto [first, isNew] = seen.try_emplace(keyOf(graph, node), node.results[0]);
    const ValueId own = node.results[0];
    const auto& outputs = group.outputs;
    const bool stored = std::find(outputs.begin(), outputs.end(), own) != outputs.end();
    // The last one marks the place where the kernel runs.
    if (isNew || stored || n == group.nodes.back()) {
      kept.push_back(n);
      continue;
    }
    node.state = Node::State::Removed;
    for (const size_t user : graph.users[own.index()]) {
      for (Operand& operand : graph.nodes[user].operands) {
        if (operand.kind == Operand::Kind::Value && operand.value == own) {
          operand.value = first->second;
        }
      }
    }
  }
  group.nodes = std::move(kept);
}

}  // namespace

void mergeEqual(Graph& graph) {
  for (Group& group : graph.groups) {
    mergeIn(graph, group);
    graph.findUses();
  }
}

}  // namespace glowplug::opt
