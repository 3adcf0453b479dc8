#include "opt/convolution.h"

#include <algorithm>

#include "opt/fusible.h"
#include "opt/operators.h"

namespace glowplug::opt {
namespace {

using common::Reason;
using Kind = Operand::Kind;

ValueId valueAt(const Node& node, size_t i) {
  const bool given = i < node.operands.size() && node.operands[i].kind == Kind::Value;
  return given ? node.operands[i].value : ValueId();
}

// One number stands for both dimensions.
std::vector<int64_t> pairAt(const Node& node, size_t i) {
  if (i >= node.operands.size() || node.operands[i].kind != Kind::Integers) return {};
  const std::vector<int64_t>& numbers = node.operands[i].integers;
  if (numbers.size() == 1) return {numbers[0], numbers[0]};
  return numbers.size() == 2 ? numbers : std::vector<int64_t>();
}

// "same" and "valid": nothing where the sides would be padded unevenly.
std::vector<int64_t> namedPadding(const std::string& name, const std::vector<int64_t>& kernel,
                                  const std::vector<int64_t>& dilation) {
  if (name == "valid") return {0, 0};
  if (name != "same" || dilation.size() != 2) return {};
  std::vector<int64_t> out;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t both = dilation[d] * (kernel[d] - 1);
    if (both % 2 != 0) return {};
    out.push_back(both / 2);
  }
  return out;
}

bool isConvolution(std::string_view name) {
  return name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d" ||
         name == "aten::convolution" || name == "aten::conv_transpose1d" ||
         name == "aten::conv_transpose2d" || name == "aten::conv_transpose3d";
}

bool readNumbers(const Node& node, const TensorType& weight, Convolution& out) {
  const std::string_view name = baseName(node.op);
  out.stride = pairAt(node, 3);
  out.dilation = pairAt(node, 5);
  out.padding = pairAt(node, 4);
  size_t groups = 6;
  if (name == "aten::convolution") {
    // ..., dilation, transposed, output_padding, groups
    if (node.operands.size() < 9 || node.operands[6].kind != Kind::Bool) return false;
    if (node.operands[6].integer != 0) return false;
    groups = 8;
  } else if (node.operands.size() > 4 && node.operands[4].kind == Kind::Text) {
    out.padding =
        namedPadding(node.operands[4].text, {weight.sizes[2], weight.sizes[3]}, out.dilation);
  }
  if (node.operands.size() <= groups || node.operands[groups].kind != Kind::Integer) return false;
  out.groups = node.operands[groups].integer;
  return out.stride.size() == 2 && out.padding.size() == 2 && out.dilation.size() == 2 &&
         out.groups >= 1;
}

bool isPlain(const TensorType* type, size_t rank) {
  return type != nullptr && type->dtype == "f32" && type->sizes.size() == rank;
}

std::optional<Reason> unfit(const Graph& graph, const Convolution& found, const Node& node) {
  const TensorType* x = graph.type(found.x);
  const TensorType* weight = graph.type(found.weight);
  const TensorType* result = graph.type(node.results[0]);
  if (x == nullptr || weight == nullptr || result == nullptr) return Reason::native_layout;
  if (x->dtype != "f32" || weight->dtype != "f32" || result->dtype != "f32") {
    return Reason::native_dtype;
  }
  if (result->grad) return Reason::native_autograd;
  // Three dimensions: a single image, without the batch.
  if (x->sizes.size() != 4 || weight->sizes.size() != 4 || result->sizes.size() != 4) {
    return Reason::native_convolution;
  }
  if (x->elements() == 0 || weight->elements() == 0 || result->elements() == 0) {
    return Reason::native_empty;
  }
  const bool constant =
      found.weight.index() < graph.frozen.size() && graph.frozen[found.weight.index()];
  if (!constant || graph.makers[found.weight.index()] >= 0) return Reason::native_weight;
  if (!found.bias.valid()) return {};
  const TensorType* bias = graph.type(found.bias);
  return isPlain(bias, 1) && bias->sizes[0] == weight->sizes[0]
             ? std::nullopt
             : std::optional(Reason::native_operand);
}

}  // namespace

std::vector<int64_t> channelsLast(const std::vector<int64_t>& sizes) {
  const int64_t c = sizes[1];
  return {sizes[2] * sizes[3] * c, 1, sizes[3] * c, c};
}

std::vector<ValueId> Convolution::sources() const {
  std::vector<ValueId> out{weight};
  if (!normed) return out;
  out.push_back(mean);
  out.push_back(variance);
  for (const ValueId id : {bias, gamma, beta}) {
    if (id.valid()) out.push_back(id);
  }
  return out;
}

bool isNormInEval(const Node& node) {
  return node.op == "aten::batch_norm" && node.operands.size() == 9 &&
         node.operands[5].kind == Kind::Bool && node.operands[5].integer == 0 &&
         valueAt(node, 3).valid() && valueAt(node, 4).valid();
}

void visitWeights(const Node& node, const std::function<void(ValueId)>& visitor) {
  const size_t end = isConvolution(baseName(node.op)) ? 3 : isNormInEval(node) ? 5 : 0;
  for (size_t i = 1; i < end; ++i) {
    if (valueAt(node, i).valid()) visitor(valueAt(node, i));
  }
}

std::optional<Convolution> convolutionOf(const Graph& graph, size_t n,
                                         std::optional<Reason>& reason) {
  const Node& node = graph.nodes[n];
  if (!isConvolution(baseName(node.op)) || node.barrier || node.results.size() != 1) return {};
  Convolution out;
  out.x = valueAt(node, 0);
  out.weight = valueAt(node, 1);
  out.bias = valueAt(node, 2);
  reason = Reason::native_operand;
  if (!out.x.valid() || !out.weight.valid()) return {};
  reason = unfit(graph, out, node);
  if (reason) return {};
  const std::string_view name = baseName(node.op);
  const bool known = name == "aten::conv2d" || name == "aten::convolution";
  if (!known || !readNumbers(node, *graph.type(out.weight), out)) {
    reason = Reason::native_convolution;
    return {};
  }
  out.members = {n};
  out.node = n;
  out.result = node.results[0];
  return out;
}

}  // namespace glowplug::opt
