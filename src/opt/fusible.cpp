#include "opt/fusible.h"

#include <algorithm>

#include "opt/linear.h"
#include "opt/operators.h"

namespace glowplug::opt {
namespace {

using common::Reason;
using Kind = Operand::Kind;

// Integers are read (masks, positions), and made by nobody yet: their division by zero raises.
bool canRead(const std::string& dtype) {
  return dtype == "f32" || dtype == "bool" || dtype == "i64" || dtype == "i32";
}
bool canMake(const std::string& dtype) { return dtype == "f32" || dtype == "bool"; }

// A permutation of a contiguous tensor: every element of the memory is one of the tensor.
bool isDense(const TensorType& type) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.sizes[d] != 1) dims.emplace_back(type.strides[d], type.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

bool broadcastsTo(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  if (from.size() > to.size()) return false;
  const size_t skipped = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[skipped + d]) return false;
  }
  return true;
}

const TensorType* tensorAt(const Graph& graph, const Node& node, size_t i) {
  const bool value = i < node.operands.size() && node.operands[i].kind == Kind::Value;
  return value ? graph.type(node.operands[i].value) : nullptr;
}

bool isAbsent(const Node& node, size_t i) {
  return i >= node.operands.size() || node.operands[i].kind == Kind::None;
}

// The operand is [size] and as its own, or absent.
bool isVector(const Graph& graph, const Node& node, size_t i, int64_t size) {
  if (isAbsent(node, i)) return true;
  const TensorType* type = tensorAt(graph, node, i);
  return type != nullptr && type->dtype == "f32" && type->sizes == std::vector<int64_t>{size};
}

// Operand `i` names the last dimension and no other.
bool isLast(const Node& node, size_t i, size_t rank) {
  if (i >= node.operands.size()) return false;
  const Operand& operand = node.operands[i];
  int64_t dim = operand.integer;
  if (operand.kind == Kind::Integers && operand.integers.size() == 1) {
    dim = operand.integers[0];
  } else if (operand.kind != Kind::Integer) {
    return false;
  }
  return dim == -1 || dim == static_cast<int64_t>(rank) - 1;
}

bool normalisesLast(const Node& node, const TensorType& x) {
  return node.operands[1].kind == Kind::Integers &&
         node.operands[1].integers == std::vector<int64_t>{x.sizes.back()};
}

bool worksAlongRows(const Graph& graph, const Node& node, const TensorType& x) {
  const std::string_view name = baseName(node.op);
  const size_t rank = x.sizes.size();
  if (node.operands.size() < 2 || rank == 0) return false;
  if (name == "aten::softmax" || name == "aten::log_softmax") {
    return isLast(node, 1, rank) && isAbsent(node, 2);
  }
  if (name == "aten::layer_norm") {
    return normalisesLast(node, x) && isVector(graph, node, 2, x.sizes.back()) &&
           isVector(graph, node, 3, x.sizes.back()) && node.operands.size() > 4 &&
           node.operands[4].kind == Kind::Real;
  }
  if (name == "aten::rms_norm") {
    const bool eps = isAbsent(node, 3) || node.operands[3].kind == Kind::Real;
    return normalisesLast(node, x) && isVector(graph, node, 2, x.sizes.back()) && eps;
  }
  // mean.dim, sum.dim_IntList, amax, amin: (x, dims, keepdim), and a dtype that is absent.
  const bool flag = node.operands.size() > 2 && node.operands[2].kind == Kind::Bool;
  return flag && isLast(node, 1, rank) && isAbsent(node, 3);
}

bool plainOperands(const Graph& graph, const Node& node, Reason& reason) {
  bool any = false;
  for (const Operand& operand : node.operands) {
    if (operand.kind == Kind::Other || operand.kind == Kind::Values) {
      reason = Reason::native_operand;
      return false;
    }
    if (operand.kind != Kind::Value) continue;
    const TensorType* type = graph.type(operand.value);
    any = true;
    reason = type == nullptr ? Reason::native_layout : Reason::native_dtype;
    if (type == nullptr || !canRead(type->dtype)) return false;
  }
  reason = Reason::native_operand;
  return any;
}

bool converts(const Node& node) {
  const std::string_view name = baseName(node.op);
  return name == "aten::to" || name == "aten::clone" || name == "aten::contiguous";
}

std::optional<Iteration> pointwise(const Graph& graph, const Node& node, const TensorType& result,
                                   Reason& reason) {
  reason = Reason::native_operand;
  if (converts(node)) {
    const TensorType* from = tensorAt(graph, node, 0);
    reason = Reason::native_dtype;
    if (from == nullptr || !canRead(from->dtype) || from->sizes != result.sizes) return {};
    return Iteration{result.sizes, false};
  }
  if (!plainOperands(graph, node, reason)) return {};
  for (const Operand& operand : node.operands) {
    if (operand.kind == Kind::Integers) return {};
    if (operand.kind != Kind::Value) continue;
    if (!broadcastsTo(graph.type(operand.value)->sizes, result.sizes)) return {};
  }
  return Iteration{result.sizes, false};
}

}  // namespace

std::vector<int64_t> rowSizes(std::vector<int64_t> sizes) {
  if (!sizes.empty()) sizes.back() = 1;
  return sizes;
}

bool isRowMajor(const TensorType& type) {
  int64_t expected = 1;
  for (size_t d = type.sizes.size(); d-- > 0;) {
    if (type.sizes[d] != 1 && type.strides[d] != expected) return false;
    expected *= type.sizes[d];
  }
  return true;
}

bool sameLayout(const TensorType& a, const TensorType& b) {
  if (a.sizes != b.sizes) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.sizes[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

std::optional<Iteration> iterationOf(const Graph& graph, const Node& node, Reason& reason) {
  const OperatorClass kind = classOf(node.op);
  reason = node.barrier ? Reason::native_writes : Reason::native_operator;
  if (node.barrier || kind == OperatorClass::Unknown) return {};
  if (kind == OperatorClass::Identity && !converts(node)) return {};
  const TensorType* result = node.results.size() == 1 ? graph.type(node.results[0]) : nullptr;
  reason = Reason::native_layout;
  if (result == nullptr || graph.makers[node.results[0].index()] < 0) return {};
  if (&graph.nodes[static_cast<size_t>(graph.makers[node.results[0].index()])] != &node) return {};
  reason = Reason::native_autograd;
  if (result->grad) return {};
  reason = Reason::native_dtype;
  if (!canMake(result->dtype)) return {};
  reason = Reason::native_layout;
  if (!isDense(*result)) return {};
  reason = Reason::native_empty;
  if (result->elements() == 0) return {};
  if (kind != OperatorClass::Rows) return pointwise(graph, node, *result, reason);
  if (baseName(node.op) == "aten::linear") {
    reason = Reason::native_operator;
    if (!smallLinearOf(graph, node)) return {};
    return Iteration{result->sizes, true, true};
  }
  if (!plainOperands(graph, node, reason)) return {};
  const TensorType* x = tensorAt(graph, node, 0);
  reason = Reason::native_operand;
  if (x == nullptr || x->dtype != "f32" || result->dtype != "f32") return {};
  if (x->elements() == 0 || !worksAlongRows(graph, node, *x)) return {};
  reason = Reason::native_layout;
  if (!isRowMajor(*result)) return {};
  return Iteration{x->sizes, true};
}

}  // namespace glowplug::opt
