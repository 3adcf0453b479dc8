#include "lower/pointwise_group.h"

#include <fmt/format.h>

#include "common/check.h"
#include "lower/affine.h"

namespace glowplug::lower {
namespace {

PointwiseOperand operandOf(const GroupOperand& operand, const PointwiseGroup& group,
                           const std::vector<Value>& inputs, const std::vector<Value>& nodes) {
  PointwiseOperand out;
  out.integer = operand.integer;
  out.real = operand.real;
  switch (operand.kind) {
    case GroupOperand::Input:
      GP_CHECK(operand.index < inputs.size(), "an input of the group");
      out.kind = PointwiseOperand::Tensor;
      out.element = inputs[operand.index];
      out.hasDims = group.inputs[operand.index].hasDims;
      break;
    case GroupOperand::Node:
      GP_CHECK(operand.index < nodes.size(), "a node before its use");
      out.kind = PointwiseOperand::Tensor;
      out.element = nodes[operand.index];
      out.hasDims = group.rank > 0;
      break;
    case GroupOperand::Integer:
      out.kind = PointwiseOperand::Integer;
      break;
    case GroupOperand::Real:
      out.kind = PointwiseOperand::Real;
      break;
    case GroupOperand::None:
      break;
  }
  return out;
}

// Where an input's element lies for the variables of the nest.
Affine placeOf(Builder& b, const PointwiseGroup& group, size_t input,
               const std::vector<Affine>& variables) {
  const std::vector<GroupInput::Stride>& strides = group.inputs[input].strides;
  GP_CHECK(strides.size() == group.rank, "a stride for each dimension");
  Affine place;
  for (size_t dim = 0; dim < group.rank; ++dim) {
    if (strides[dim] == GroupInput::One) place = place + variables[dim];
    if (strides[dim] != GroupInput::Any) continue;
    place = place + variables[dim] * b.size(fmt::format("s{}_{}", input, dim));
  }
  return place;
}

}  // namespace

LoweredGroup lowerGroup(const PointwiseGroup& group) {
  Builder b(group.name);
  std::vector<Affine> extents;
  for (size_t dim = 0; dim < group.rank; ++dim) extents.push_back(b.size(fmt::format("n{}", dim)));
  const std::vector<Affine> variables = b.nest(extents, group.rank > 0);
  std::vector<Value> inputs, nodes;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const BufferId buffer = b.buffer(fmt::format("in{}", i), group.inputs[i].dtype, Role::In);
    inputs.push_back(b.load(buffer, placeOf(b, group, i, variables)));
  }
  for (const GroupNode& node : group.nodes) {
    PointwiseCall call{node.op, {}, node.mode, node.dtype};
    for (const GroupOperand& operand : node.operands) {
      call.operands.push_back(operandOf(operand, group, inputs, nodes));
    }
    LoweredGroup refused;
    nodes.push_back(lowerPointwise(b, call, refused.refusal));
    if (!nodes.back().valid()) return refused;
  }
  Affine place, stride = constantIndex(1);
  for (size_t dim = group.rank; dim-- > 0;) {
    place = place + variables[dim] * stride;
    stride = stride * extents[dim];
  }
  for (size_t i = 0; i < group.outputs.size(); ++i) {
    const Value value = nodes.at(group.outputs[i]);
    b.store(b.buffer(fmt::format("out{}", i), value.dtype, Role::Out), place, value);
  }
  return {b.take(), {}};
}

}  // namespace glowplug::lower
