#include "opt/linear.h"

#include "opt/fusible.h"
#include "opt/operators.h"

namespace glowplug::opt {
namespace {

using common::Reason;
using Kind = Operand::Kind;

// Below, the call of oneDNN through the dispatcher costs more than its products save: measured on
// an AMD EPYC, 1 x 768 x 768 (1.2 MFLOP) is level, 16 x 512 x 512 (8 MFLOP) is 1.6 times as fast.
constexpr double kLeastFlops = 2e6;
// Small weights are in cache for ATen's library as well: 576 x 24 x 96 and 144 x 48 x 192 (2.7
// MFLOP) are level, 9 x 192 x 768 is 1.9 times as fast. And making a primitive takes oneDNN a
// millisecond.
constexpr double kFlopsOfSmallWeights = 4e6;
constexpr double kSmallWeight = 50e3;  // elements

// A kernel makes one element of the result at a time, of vectors along the weight's rows, and pays
// for the sum over lanes as for this many further products. Above so many products of one layer the
// library's call is no longer the larger part.
constexpr double kLanesSum = 160;
constexpr double kMostProducts = 400e3;

bool isMatrix(const TensorType* type) {
  return type != nullptr && type->dtype == "f32" && type->sizes.size() == 2 && isRowMajor(*type);
}

bool isOne(const Operand& operand) {
  return (operand.kind == Kind::Integer && operand.integer == 1) ||
         (operand.kind == Kind::Real && operand.real == 1);
}

// The operands' places, for operators of this kind.
std::optional<Linear> operandsOf(const Node& node) {
  const std::string_view name = baseName(node.op);
  const auto value = [&](size_t i) {
    const bool given = i < node.operands.size() && node.operands[i].kind == Kind::Value;
    return given ? node.operands[i].value : ValueId();
  };
  Linear out;
  if (name == "aten::linear") {
    out.x = value(0);
    out.weight = value(1);
    out.bias = value(2);
  } else if (node.op == "aten::addmm" && node.operands.size() == 5 && isOne(node.operands[3]) &&
             isOne(node.operands[4])) {
    out.bias = value(0);
    out.x = value(1);
    out.weight = value(2);
    out.transposed = true;
  }
  if (!out.x.valid() || !out.weight.valid()) return {};
  return out;
}

// Linear layers of any size that have the layout and dtype.
std::optional<Linear> plainLinear(const Graph& graph, const Node& node,
                                  std::optional<Reason>& reason) {
  std::optional<Linear> out = operandsOf(node);
  if (!out || node.barrier || node.results.size() != 1) return {};
  const TensorType* x = graph.type(out->x);
  const TensorType* weight = graph.type(out->weight);
  const TensorType* result = graph.type(node.results[0]);
  reason = Reason::native_layout;
  if (x == nullptr || result == nullptr || !isMatrix(weight) || !isRowMajor(*x)) return {};
  if (x->sizes.size() < 2 || !isRowMajor(*result)) return {};
  reason = Reason::native_dtype;
  if (x->dtype != "f32" || result->dtype != "f32") return {};
  reason = Reason::native_autograd;
  if (result->grad) return {};
  out->in = weight->sizes[out->transposed ? 0 : 1];
  out->out = weight->sizes[out->transposed ? 1 : 0];
  reason = Reason::native_operand;
  if (out->in == 0 || x->sizes.back() != out->in) return {};
  out->rows = x->elements() / out->in;
  if (out->bias.valid()) {
    const TensorType* bias = graph.type(out->bias);
    const bool vector = bias != nullptr && bias->dtype == "f32" && isRowMajor(*bias) &&
                        bias->sizes == std::vector<int64_t>{out->out};
    if (!vector) return {};
  }
  reason = {};
  return out;
}

}  // namespace

std::optional<Linear> smallLinearOf(const Graph& graph, const Node& node) {
  std::optional<Reason> reason;
  const std::optional<Linear> out = plainLinear(graph, node, reason);
  if (!out || out->transposed || out->rows == 0 || out->in < 2 || out->out < 2) return {};
  const double products = static_cast<double>(out->rows) * static_cast<double>(out->out) *
                          (static_cast<double>(out->in) + kLanesSum);
  return products <= kMostProducts ? out : std::nullopt;
}

std::optional<Linear> linearOf(const Graph& graph, const Node& node,
                               std::optional<Reason>& reason) {
  const std::optional<Linear> out = plainLinear(graph, node, reason);
  if (!out) return {};
  reason = Reason::native_small;
  const double flops = 2.0 * static_cast<double>(out->rows) * static_cast<double>(out->in) *
                       static_cast<double>(out->out);
  const double elements = static_cast<double>(out->in) * static_cast<double>(out->out);
  if (flops < (elements < kSmallWeight ? kFlopsOfSmallWeights : kLeastFlops)) return {};
  reason = Reason::native_weight;
  if (graph.makers[out->weight.index()] >= 0) return {};
  reason = {};
  return out;
}

}  // namespace glowplug::opt
