// %2 = aten::pad %0 [1,1,1,1] "constant" 0; %3 = aten::conv2d %2 %1 _ [1,1] [0,0] [1,1] 1
// %8 = aten::batch_norm %3 %4 %5 %6 %7 False 0.1 1e-05 True
// %8 = aten::add_ %8 %9 1; %10 = aten::relu %8
//   ->   convolution %0 %1 padding [1,1] normed by %4 %5 %6 %7, + %9, relu -> %10
//
// A convolution and a batch norm in eval make a tensor of their own. So where the operator that
// writes into it is the first to see it, nobody can tell that the value was not there before: it
// is one more step of the chain. The whole runs in the place of its last operator, so nothing
// between may write but the chain's own members, or those of other chains, which write into what
// is theirs.

#include <algorithm>
#include <utility>

#include "opt/activation.h"
#include "opt/convolution.h"
#include "opt/fusible.h"
#include "opt/passes.h"

namespace glowplug::opt {
namespace {

using Kind = Operand::Kind;

class Chain {
 public:
  Chain(const Graph& graph, Convolution start)
      : graph_(graph), chain_(std::move(start)), last_(chain_.node) {}

  Convolution grown() {
    takePadding();
    while (const std::optional<size_t> next = successor()) {
      if (!takeNext(*next)) break;
    }
    chain_.result = value();
    return std::move(chain_);
  }

 private:
  ValueId value() const { return graph_.nodes[last_].results[0]; }

  // The operator that is the next to see the value, and leaves it for nobody else.
  std::optional<size_t> successor() const {
    const ValueId made = value();
    const auto& users = graph_.users[made.index()];
    const auto found = std::upper_bound(users.begin(), users.end(), last_);
    if (found == users.end()) return {};
    const Node& next = graph_.nodes[*found];
    if (next.state != Node::State::Kept || next.results.size() != 1) return {};
    const bool inPlace = next.results[0] == made;
    if (!inPlace && (found + 1 != users.end() || graph_.escapes[made.index()])) return {};
    if (!graph_.isCalm(last_, *found)) return {};
    const TensorType* from = graph_.type(made);
    const TensorType* to = graph_.type(next.results[0]);
    if (from == nullptr || to == nullptr || to->dtype != "f32" || to->grad) return {};
    return from->sizes == to->sizes ? std::optional(*found) : std::nullopt;
  }

  bool takeNext(size_t n) {
    const Node& node = graph_.nodes[n];
    // Besides the chain's own value, which it writes, an operator may not write.
    const bool inPlace = node.results[0] == value();
    if (node.barrier && !inPlace) return false;
    if (chain_.activation != "none") return false;
    if (!takeNorm(node) && !takeOther(node, inPlace) && !takeActivation(node)) return false;
    chain_.members.push_back(n);
    last_ = n;
    return true;
  }

  // A batch norm by running statistics that nothing in the graph makes.
  bool takeNorm(const Node& node) {
    if (!isNormInEval(node) || chain_.normed || chain_.other.valid()) return false;
    if (node.operands[0].value != value()) return false;
    const std::optional<double> epsilon = numberAt(node, 7);
    if (!epsilon) return false;
    const int64_t channels = graph_.type(value())->sizes[1];
    const auto fits = [&](ValueId id) {
      const TensorType* type = graph_.type(id);
      const bool known = id.index() < graph_.frozen.size() && graph_.frozen[id.index()];
      return known && graph_.makers[id.index()] < 0 && type != nullptr && type->dtype == "f32" &&
             type->sizes == std::vector<int64_t>{channels};
    };
    if (chain_.bias.valid() && !fits(chain_.bias)) return false;
    ValueId ids[4];
    for (size_t i = 0; i < 4; ++i) {
      const Operand& operand = node.operands[i + 1];
      if (operand.kind == Kind::None) continue;
      if (operand.kind != Kind::Value || !fits(operand.value)) return false;
      ids[i] = operand.value;
    }
    chain_.normed = true;
    chain_.gamma = ids[0];
    chain_.beta = ids[1];
    chain_.mean = ids[2];
    chain_.variance = ids[3];
    chain_.epsilon = *epsilon;
    return true;
  }

  bool takeOther(const Node& node, bool inPlace) {
    const bool adds = node.op == "aten::add.Tensor" || (node.op == "aten::add_.Tensor" && inPlace);
    if (!adds || chain_.other.valid() || numberAt(node, 2) != 1) return false;
    const Operand& a = node.operands[0];
    const Operand& b = node.operands[1];
    if (a.kind != Kind::Value || b.kind != Kind::Value || a.value == b.value) return false;
    const ValueId other = a.value == value() ? b.value : a.value;
    const TensorType* type = graph_.type(other);
    if (type == nullptr || type->dtype != "f32" || type->grad) return false;
    if (type->sizes != graph_.type(value())->sizes) return false;
    chain_.other = other;
    return true;
  }

  bool takeActivation(const Node& node) {
    const std::optional<Activation> found = activationOf(node);
    // After an addition oneDNN is asked for nothing else.
    if (!found || (found->name != "relu" && chain_.other.valid())) return false;
    chain_.activation = found->name;
    chain_.algorithm = found->algorithm;
    chain_.scalars = found->scalars;
    return true;
  }

  // Zeros around the input. Only a primitive of our own takes more of them after it than before.
  void takePadding() {
    const int64_t maker = graph_.makers[chain_.x.index()];
    if (maker < 0) return;
    const auto n = static_cast<size_t>(maker);
    const Node& node = graph_.nodes[n];
    const bool named = node.op == "aten::pad" && node.operands.size() == 4 &&
                       node.operands[2].kind == Kind::Text && node.operands[2].text == "constant";
    const bool plain = node.op == "aten::constant_pad_nd" && node.operands.size() == 3;
    if ((!named && !plain) || node.barrier || node.state != Node::State::Kept) return;
    const Operand& fill = node.operands.back();
    if (!(named && fill.kind == Kind::None) && numberAt(node, node.operands.size() - 1) != 0)
      return;
    if (!graph_.onlyUser(chain_.x)) return;
    const Operand& sides = node.operands[1];
    if (sides.kind != Kind::Integers || node.operands[0].kind != Kind::Value) return;
    const std::vector<int64_t>& by = sides.integers;
    if (by.size() != 4 || std::any_of(by.begin(), by.end(), [](int64_t n) { return n < 0; }))
      return;
    const TensorType* type = graph_.type(node.operands[0].value);
    if (type == nullptr || type->sizes.size() != 4 || type->dtype != "f32") return;
    if (type->elements() == 0 || !graph_.isCalm(n, chain_.node)) return;
    chain_.x = node.operands[0].value;
    if (by[0] != by[1] || by[2] != by[3]) {
      chain_.after = {chain_.padding[0] + by[3], chain_.padding[1] + by[1]};
    }
    chain_.padding[0] += by[2];
    chain_.padding[1] += by[0];
    chain_.members.insert(chain_.members.begin(), n);
  }

  const Graph& graph_;
  Convolution chain_;
  size_t last_;
};

}  // namespace

void packConvolutions(Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.state != Node::State::Kept) continue;
    std::optional<common::Reason> reason;
    std::optional<Convolution> start = convolutionOf(graph, n, reason);
    if (reason) node.reason = reason;
    if (!start) continue;
    Convolution chain = Chain(graph, std::move(*start)).grown();
    for (const size_t member : chain.members) {
      graph.nodes[member].state = Node::State::Packed;
      graph.nodes[member].group = graph.convolutions.size();
      graph.nodes[member].reason = {};
    }
    graph.convolutions.push_back(std::move(chain));
  }
}

}  // namespace glowplug::opt
