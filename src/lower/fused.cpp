#include "lower/fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "common/check.h"
#include "common/hash.h"
#include "lower/printer.h"
#include "lower/tables.h"
#include "opt/operators.h"

namespace glowplug::lower {
namespace fused {
namespace {

using Kind = opt::Operand::Kind;

// Strides of a tensor along the dimensions of sizes that it is broadcast to.
std::vector<int64_t> broadcastStrides(const opt::TensorType& type, size_t rank) {
  std::vector<int64_t> out(rank, 0);
  const size_t skipped = rank - type.sizes.size();
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.sizes[d] != 1) out[skipped + d] = type.strides[d];
  }
  return out;
}

// The order of dimensions in which the tensor's elements lie one after the other.
std::vector<size_t> memoryOrder(const opt::TensorType& type) {
  std::vector<size_t> order(type.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t d) { return type.sizes[d] == 1; });
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return type.strides[a] > type.strides[b]; });
  return order;
}

GroupOperand numberOf(const opt::Operand& operand) {
  switch (operand.kind) {
    case Kind::Integer:
    case Kind::Bool:
      return {GroupOperand::Integer, 0, operand.integer, 0};
    case Kind::Real:
      return {GroupOperand::Real, 0, 0, operand.real};
    default:
      return {GroupOperand::None, 0, 0, 0};
  }
}

}  // namespace

Loops loopsOver(const std::vector<int64_t>& sizes, const std::vector<size_t>& order,
                const std::vector<const opt::TensorType*>& inputs) {
  Loops out;
  std::vector<std::vector<int64_t>> strides;
  for (const opt::TensorType* type : inputs) {
    strides.push_back(broadcastStrides(*type, sizes.size()));
  }
  out.inputs.resize(inputs.size());
  for (const size_t dim : order) {
    bool joins = !out.extents.empty();
    for (size_t i = 0; i < inputs.size() && joins; ++i) {
      joins = out.inputs[i].back() == strides[i][dim] * sizes[dim];
    }
    if (joins) {
      out.extents.back() *= sizes[dim];
    } else {
      out.extents.push_back(sizes[dim]);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (joins) {
        out.inputs[i].back() = strides[i][dim];
      } else {
        out.inputs[i].push_back(strides[i][dim]);
      }
    }
  }
  return out;
}

DType dtypeOf(const opt::Graph& graph, common::ValueId id) {
  const opt::TensorType* type = graph.type(id);
  const auto dtype = type != nullptr ? kindNamed<DType>(type->dtype) : std::nullopt;
  GP_CHECK(dtype, fmt::format("%{} has a dtype of kernels", id.value));
  return *dtype;
}

GroupNode pointwiseOf(const opt::Graph& graph, const opt::Node& node) {
  GroupNode out{node.op, {}, "", dtypeOf(graph, node.results[0])};
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const opt::Operand& operand = node.operands[i];
    if (operand.kind == Kind::Text) {
      out.mode = operand.text;
    } else if (operand.kind == Kind::Value) {
      out.operands.push_back({GroupOperand::Input, i, 0, 0});
    } else {
      out.operands.push_back(numberOf(operand));
    }
  }
  const std::string_view name = opt::baseName(node.op);
  if (name == "aten::to" || name == "aten::clone" || name == "aten::contiguous") {
    out.op = "aten::_to_copy";
    out.mode.clear();
    out.operands.resize(1);
  } else if (name == "aten::square") {
    out.op = "aten::pow";
    out.operands.push_back({GroupOperand::Integer, 0, 2, 0});
  } else if (name == "aten::masked_fill") {
    out.op = "aten::where";
    out.operands = {out.operands[1], out.operands[2], out.operands[0]};
  }
  return out;
}

FusedKernel lowerPointwiseGroup(const opt::Graph& graph, const opt::Group& group) {
  PointwiseGroup out{"fused", 0, {}, {}, {}};
  std::vector<const opt::TensorType*> types;
  for (const common::ValueId id : group.inputs) types.push_back(graph.type(id));
  const opt::TensorType& layout = *graph.type(group.outputs[0]);
  Loops loops = loopsOver(layout.sizes, memoryOrder(layout), types);
  if (loops.extents.empty() && !layout.sizes.empty()) {
    loops.extents.push_back(1);
    for (auto& strides : loops.inputs) strides.push_back(0);
  }
  out.rank = loops.extents.size();
  FusedKernel fused;
  fused.sizes = loops.extents;
  std::map<common::ValueId, GroupOperand> known;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    GroupInput input{dtypeOf(graph, group.inputs[i]), {}, !types[i]->sizes.empty()};
    for (const int64_t stride : loops.inputs[i]) {
      using enum GroupInput::Stride;
      input.strides.push_back(stride == 0 ? Zero : stride == 1 ? One : Any);
      if (stride > 1) fused.sizes.push_back(stride);
    }
    out.inputs.push_back(std::move(input));
    known[group.inputs[i]] = {GroupOperand::Input, i, 0, 0};
  }
  for (const size_t n : group.nodes) {
    const opt::Node& node = graph.nodes[n];
    GroupNode call = pointwiseOf(graph, node);
    for (GroupOperand& operand : call.operands) {
      if (operand.kind == GroupOperand::Input) {
        operand = known.at(node.operands[operand.index].value);
      }
    }
    known[node.results[0]] = {GroupOperand::Node, out.nodes.size(), 0, 0};
    out.nodes.push_back(std::move(call));
  }
  for (const common::ValueId id : group.outputs) out.outputs.push_back(known.at(id).index);
  LoweredGroup lowered = lowerGroup(out);
  fused.kernel = std::move(lowered.kernel);
  fused.refusal = std::move(lowered.refusal);
  return fused;
}

}  // namespace fused

FusedKernel lowerFused(const opt::Graph& graph, const opt::Group& group) {
  FusedKernel out = group.kind == opt::Group::Kind::Rows ? fused::lowerRowGroup(graph, group)
                                                         : fused::lowerPointwiseGroup(graph, group);
  if (out.kernel) {
    const common::Hash hash = common::hashOf(print(*out.kernel));
    out.kernel->name = fmt::format("{}_{}", out.kernel->name, hash.hex());
  }
  return out;
}

}  // namespace glowplug::lower
