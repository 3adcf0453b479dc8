// %3 = convolution %0: f32[1,64,56,56]{200704,3136,56,1}, used by convolutions and pools only
//   ->   f32[1,64,56,56]{200704,1,3584,64}
//
// oneDNN convolves fastest with the channels last in memory. Strides of a value can be seen by
// whom it escapes to, and by operators whose result is a view or depends on them; where there is
// no such user, the value lies as it is best. Other results of operators that read one of those
// keep the strides that they were recorded with: what ATen gives is copied if it has others.

#include <algorithm>
#include <unordered_set>

#include "opt/convolution.h"
#include "opt/operators.h"
#include "opt/passes.h"

namespace glowplug::opt {
namespace {

using Kind = Operand::Kind;

// They compute the same from operands of any strides, into memory of their own, and draw nothing.
bool isFree(const Node& node) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::max_pool2d",
      "aten::avg_pool2d",
      "aten::adaptive_avg_pool2d",
      "aten::adaptive_max_pool2d",
      "aten::upsample_nearest2d",
      "aten::upsample_bilinear2d",
      "aten::pad",
      "aten::constant_pad_nd",
      "aten::cat",
      "aten::group_norm",
      "aten::hardtanh",
      "aten::hardswish",
      "aten::hardsigmoid",
      "aten::elu",
      "aten::softplus",
      "aten::mish",
      "aten::conv2d",
      "aten::conv_transpose2d",
      "aten::convolution",
  };
  if (node.barrier || node.op.empty() || node.op.ends_with("out")) return false;
  const OperatorClass kind = classOf(node.op);
  if (kind == OperatorClass::Pointwise || kind == OperatorClass::Rows) return true;
  return kNames.count(baseName(node.op)) > 0 || isNormInEval(node);
}

// They write into their first operand, element by element.
bool writesElements(const Node& node) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::relu_",     "aten::add_",  "aten::mul_",     "aten::sub_",       "aten::div_",
      "aten::hardtanh_", "aten::silu_", "aten::sigmoid_", "aten::hardswish_", "aten::leaky_relu_"};
  const bool own = node.results.size() == 1 && !node.operands.empty() &&
                   node.operands[0].kind == Kind::Value &&
                   node.operands[0].value == node.results[0];
  return own && kNames.count(baseName(node.op)) > 0;
}

bool isPermutation(const Node& node) {
  return node.op == "aten::permute" && node.results.size() == 1 && node.operands.size() == 2 &&
         node.operands[0].kind == Kind::Value && node.operands[1].kind == Kind::Integers &&
         node.operands[1].integers.size() == 4;
}

class Layout {
 public:
  explicit Layout(Graph& graph) : graph_(graph), known_(graph.types.size()) {
    changed_.assign(graph.types.size(), false);
    graph.relaid.assign(graph.types.size(), false);
  }

  void run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.state == Node::State::Removed) continue;
      if (node.state == Node::State::Packed) {
        const Convolution& convolution = graph_.convolutions[node.group];
        if (convolution.members.back() == n) {
          const ValueId id = convolution.result;
          if (mayVary(id)) change(id, channelsLast(graph_.type(id)->sizes));
        }
      } else if (isPermutation(node)) {
        permute(node);
      } else if (readsChanged(node) && !writesElements(node)) {
        follow(node);
      }
    }
  }

 private:
  // The value's strides may be other than recorded.
  bool mayVary(ValueId id) {
    std::optional<bool>& known = known_[id.index()];
    if (!known) known = findOut(id);
    return *known;
  }

  bool findOut(ValueId id) {
    const TensorType* type = graph_.type(id);
    if (type == nullptr || graph_.escapes[id.index()] || graph_.makers[id.index()] < 0)
      return false;
    if (type->dtype != "f32" || type->grad || type->sizes.size() != 4) return false;
    const auto& users = graph_.users[id.index()];
    return std::all_of(users.begin(), users.end(), [&](size_t n) {
      const Node& user = graph_.nodes[n];
      if (user.state == Node::State::Packed || isFree(user) || writesElements(user)) return true;
      return isPermutation(user) && mayVary(user.results[0]);
    });
  }

  bool readsChanged(const Node& node) const {
    bool any = false;
    visitValues(node, [&](ValueId id) { any |= changed_[id.index()]; });
    return any;
  }

  void change(ValueId id, std::vector<int64_t> strides) {
    if (!mayVary(id)) return;
    graph_.types[id.index()]->strides = std::move(strides);
    changed_[id.index()] = true;
  }

  void permute(const Node& node) {
    const ValueId from = node.operands[0].value;
    const ValueId to = node.results[0];
    if (!changed_[from.index()]) return;
    for (size_t d = 0; d < 4; ++d) {
      int64_t at = node.operands[1].integers[d];
      if (at < 0) at += 4;
      graph_.types[to.index()]->strides[d] =
          graph_.types[from.index()]->strides[static_cast<size_t>(at)];
    }
    changed_[to.index()] = true;
  }

  // Element by element, as an operand lies; over images, the channels stay last.
  void follow(const Node& node) {
    const OperatorClass kind = classOf(node.op);
    for (const ValueId id : node.results) {
      if (!graph_.type(id)) continue;
      graph_.relaid[id.index()] = true;
      const TensorType* like = nullptr;
      visitValues(node, [&](ValueId operand) {
        if (!like && changed_[operand.index()]) like = graph_.type(operand);
      });
      if (kind == OperatorClass::Rows || !mayVary(id)) continue;
      if (like->sizes == graph_.type(id)->sizes) {
        change(id, like->strides);
      } else if (kind != OperatorClass::Pointwise && like->strides == channelsLast(like->sizes)) {
        change(id, channelsLast(graph_.type(id)->sizes));
      }
    }
  }

  Graph& graph_;
  std::vector<std::optional<bool>> known_;  // by ValueId
  std::vector<bool> changed_;
};

}  // namespace

void spreadChannelsLast(Graph& graph) { Layout(graph).run(); }

}  // namespace glowplug::opt
