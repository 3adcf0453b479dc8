#include "opt/graph.h"

#include <algorithm>

#include "opt/convolution.h"

namespace glowplug::opt {
namespace {

using ir::Event;
using ir::EventKind;

Operand operandOf(const ir::Trace& trace, const ir::Operand& operand,
                  const std::vector<Operand>& constants) {
  Operand out;
  switch (operand.kind) {
    case ir::Operand::Kind::None:
      break;
    case ir::Operand::Kind::Value:
      out.kind = Operand::Kind::Value;
      out.value = operand.value;
      break;
    case ir::Operand::Kind::Const:
      return constants[operand.constant.index()];
    case ir::Operand::Kind::List:
      out.kind = Operand::Kind::Values;
      for (const ir::Operand& item : operand.items) {
        const Operand one = operandOf(trace, item, constants);
        if (one.kind == Operand::Kind::Value) out.values.push_back(one.value);
      }
      break;
  }
  return out;
}

}  // namespace

int64_t TensorType::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

std::optional<double> numberAt(const Node& node, size_t i) {
  if (i >= node.operands.size()) return {};
  const Operand& operand = node.operands[i];
  if (operand.kind == Operand::Kind::Integer) return static_cast<double>(operand.integer);
  if (operand.kind == Operand::Kind::Real) return operand.real;
  return {};
}

void visitValues(const Node& node, const std::function<void(ValueId)>& visitor) {
  for (const Operand& operand : node.operands) {
    if (operand.kind == Operand::Kind::Value) visitor(operand.value);
    for (const ValueId id : operand.values) visitor(id);
  }
}

void Graph::findUses() {
  users.assign(types.size(), {});
  makers.assign(types.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].state == Node::State::Removed) continue;
    visitValues(nodes[n], [&](ValueId id) {
      auto& list = users[id.index()];
      if (list.empty() || list.back() != n) list.push_back(n);
    });
    for (const ValueId id : nodes[n].results) {
      // An operator that writes, or returns what it was given, does not make it.
      const bool isOperand = !users[id.index()].empty() && users[id.index()].back() == n;
      if (makers[id.index()] < 0 && !isOperand) makers[id.index()] = static_cast<int64_t>(n);
    }
  }
}

bool Graph::isCalm(size_t from, size_t to) const {
  for (size_t n = from + 1; n < to; ++n) {
    if (nodes[n].barrier && nodes[n].state != Node::State::Packed) return false;
  }
  return true;
}

std::optional<size_t> Graph::onlyUser(ValueId value) const {
  const auto& found = users[value.index()];
  if (found.size() != 1 || escapes[value.index()]) return {};
  return found[0];
}

Graph graphOf(const ir::Trace& trace, size_t begin, size_t end, std::vector<bool> escapes,
              const std::function<bool(common::OperatorId)>& mayWrite) {
  Graph graph;
  std::vector<std::optional<TensorType>> metas;
  for (const std::string& text : trace.metaTexts) metas.push_back(parseType(text));
  std::vector<Operand> constants;
  for (const std::string& text : trace.ivalueTexts) constants.push_back(parseConstant(text));
  for (const ir::Value& value : trace.values) {
    const bool known = value.kind == ir::ValueKind::Tensor && value.meta.valid() &&
                       value.meta.index() < metas.size() && !value.dataDependent;
    graph.types.push_back(known ? metas[value.meta.index()] : std::nullopt);
  }
  for (size_t e = begin; e < end; ++e) {
    const Event& event = trace.events[e];
    if (event.kind == EventKind::Input || event.kind == EventKind::Effect) continue;
    Node node;
    node.event = e;
    node.barrier = event.kind != EventKind::Op;
    if (event.kind == EventKind::Op) {
      node.op = trace.operatorNames[event.op.index()];
      for (const ir::Operand& operand : event.operands) {
        node.operands.push_back(operandOf(trace, operand, constants));
      }
      const bool writes = mayWrite(event.op) && !isNormInEval(node);
      node.barrier = event.writesInput || writes || !node.op.starts_with("aten::");
    }
    for (const ValueId id : event.results) {
      if (id.valid()) node.results.push_back(id);
    }
    graph.nodes.push_back(std::move(node));
  }
  graph.escapes = std::move(escapes);
  graph.escapes.resize(graph.types.size());
  graph.frozen.resize(graph.types.size());
  graph.findUses();
  return graph;
}

}  // namespace glowplug::opt
