// %4 = aten::scaled_dot_product_attention %0 %1 %2 %3 0.0 False   ->   attention %0 %1 %2 %3
//
// For float32 of moderate size: keys and values of a head have to fit into the second-level cache,
// there have to be heads to share out among threads, and rows for which transposing the keys pays.

#include <cmath>

#include "opt/passes.h"

namespace glowplug::opt {
namespace {

using common::Reason;
using Kind = Operand::Kind;

constexpr int64_t kLeastRows = 12;
constexpr int64_t kLeastHeads = 4;  // batch included
constexpr int64_t kMostColumns = 1024;
constexpr int64_t kMostDepth = 128;

ValueId valueAt(const Node& node, size_t i) {
  return node.operands[i].kind == Kind::Value ? node.operands[i].value : ValueId();
}

bool isNo(const Operand& operand) {
  return (operand.kind == Kind::Bool || operand.kind == Kind::Integer) && operand.integer == 0;
}

// Of four dimensions, the last of which is dense.
bool isPlain(const TensorType* type) {
  return type != nullptr && type->dtype == "f32" && !type->grad && type->sizes.size() == 4 &&
         type->strides[3] == 1 && type->elements() > 0;
}

// A mask may be of size 1 where it is the same for all, but for columns.
bool masks(const TensorType* mask, const std::vector<int64_t>& sizes) {
  if (!isPlain(mask) || mask->sizes[3] != sizes[3]) return false;
  for (size_t d = 0; d < 3; ++d) {
    if (mask->sizes[d] != 1 && mask->sizes[d] != sizes[d]) return false;
  }
  return true;
}

// What its operands say, where there is a kernel for it.
std::optional<Attention> attentionOf(const Graph& graph, size_t n, Reason& reason) {
  const Node& node = graph.nodes[n];
  reason = Reason::native_operand;
  if (node.operands.size() != 8 || node.results.size() != 1) return {};
  Attention out{n, valueAt(node, 0), valueAt(node, 1), valueAt(node, 2), valueAt(node, 3)};
  if (!out.q.valid() || !out.k.valid() || !out.v.valid()) return {};
  const bool masked = node.operands[3].kind != Kind::None;
  const bool keeps = numberAt(node, 4) == 0;
  out.causal = !isNo(node.operands[5]);
  if (!keeps || (out.causal && (masked || node.operands[5].kind != Kind::Bool))) return {};
  reason = Reason::native_layout;
  const TensorType *q = graph.type(out.q), *k = graph.type(out.k), *v = graph.type(out.v);
  if (!isPlain(q) || !isPlain(k) || !isPlain(v) || !isPlain(graph.type(node.results[0]))) return {};
  reason = Reason::native_operand;
  const int64_t batch = q->sizes[0], heads = q->sizes[1], rows = q->sizes[2];
  const int64_t keyHeads = k->sizes[1], columns = k->sizes[2], depth = q->sizes[3];
  const bool grouped = !isNo(node.operands[7]);
  if (k->sizes[0] != batch || k->sizes[3] != depth || heads % keyHeads != 0) return {};
  if (heads != keyHeads && !grouped) return {};
  out.headsPerKey = heads / keyHeads;
  const int64_t valueDepth = v->sizes[3];
  if (v->sizes != std::vector<int64_t>{batch, keyHeads, columns, valueDepth}) return {};
  const std::vector<int64_t> made{batch, heads, rows, valueDepth};
  if (graph.type(node.results[0])->sizes != made) return {};
  if (masked &&
      (!out.mask.valid() || !masks(graph.type(out.mask), {batch, heads, rows, columns}))) {
    return {};
  }
  const bool scaled = node.operands[6].kind != Kind::None;
  const std::optional<double> scale = numberAt(node, 6);
  if (scaled && !scale) return {};
  out.scale = scaled ? *scale : 1 / std::sqrt(static_cast<double>(depth));
  reason = Reason::native_small;
  if (rows < kLeastRows || batch * heads < kLeastHeads) return {};
  reason = Reason::native_operand;
  if (columns > kMostColumns || depth > kMostDepth || valueDepth > kMostDepth) return {};
  return out;
}

}  // namespace

void findAttention(Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.op != "aten::scaled_dot_product_attention" || node.barrier) continue;
    if (node.state != Node::State::Kept) continue;
    Reason reason = Reason::native_operand;
    const std::optional<Attention> found = attentionOf(graph, n, reason);
    if (!found) {
      node.reason = reason;
      continue;
    }
    node.state = Node::State::Attention;
    node.group = graph.attentions.size();
    graph.attentions.push_back(*found);
  }
}

}  // namespace glowplug::opt
