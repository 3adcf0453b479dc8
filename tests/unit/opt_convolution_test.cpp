// Which operators are convolutions with a weight to pack; what they take in is in tests/golden/opt.

#include "opt/convolution.h"

#include <gtest/gtest.h>

#include "opt/passes.h"
#include "opt_support.h"

namespace glowplug::opt {
namespace {

using common::Reason;
using Kind = Operand::Kind;

// %3 = conv2d(%0: [2,8,6,6], %1: [8,8,3,3], %2: [8])
Graph convolution() {
  Graph graph;
  graph.types = {f32({2, 8, 6, 6}), f32({8, 8, 3, 3}), f32({8}), f32({2, 8, 4, 4})};
  graph.escapes.assign(4, false);
  graph.frozen = {false, true, true, false};
  Node node;
  node.op = "aten::conv2d";
  node.operands = {value(0),         value(1),         value(2),  integers({1, 1}),
                   integers({0, 0}), integers({1, 1}), integer(1)};
  node.results = {common::ValueId(3)};
  graph.nodes.push_back(std::move(node));
  graph.findUses();
  return graph;
}

std::optional<Reason> refusal(const Graph& graph) {
  std::optional<Reason> reason;
  EXPECT_FALSE(convolutionOf(graph, 0, reason));
  return reason;
}

std::vector<int64_t> paddingOf(const Graph& graph) {
  std::optional<Reason> reason;
  const auto found = convolutionOf(graph, 0, reason);
  return found ? found->padding : std::vector<int64_t>();
}

TEST(Convolution, FindsItsOperands) {
  const Graph graph = convolution();
  std::optional<Reason> reason;
  const auto found = convolutionOf(graph, 0, reason);
  ASSERT_TRUE(found);
  EXPECT_FALSE(reason);
  EXPECT_EQ(found->weight.index(), 1u);
  EXPECT_EQ(found->bias.index(), 2u);
  EXPECT_EQ(found->result.index(), 3u);
  EXPECT_EQ(found->stride, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(found->groups, 1);
}

TEST(Convolution, PaddingByNameIsEvenOrRefused) {
  Graph graph = convolution();
  graph.nodes[0].op = "aten::conv2d.padding";
  graph.nodes[0].operands[4] = text("same");
  EXPECT_EQ(paddingOf(graph), (std::vector<int64_t>{1, 1}));
  graph.nodes[0].operands[5] = integers({2, 1});
  EXPECT_EQ(paddingOf(graph), (std::vector<int64_t>{2, 1}));
  graph.nodes[0].operands[4] = text("valid");
  EXPECT_EQ(paddingOf(graph), (std::vector<int64_t>{0, 0}));
  graph.nodes[0].operands[4] = text("same");
  graph.types[1] = f32({8, 8, 4, 3});
  graph.nodes[0].operands[5] = integers({1, 1});
  EXPECT_EQ(refusal(graph), Reason::native_convolution);
}

TEST(Convolution, TheGeneralOperatorToo) {
  Graph graph = convolution();
  Operand no;
  no.kind = Kind::Bool;
  graph.nodes[0].op = "aten::convolution";
  graph.nodes[0].operands.resize(6);
  for (const Operand& operand : {no, integers({0, 0}), integer(2)}) {
    graph.nodes[0].operands.push_back(operand);
  }
  std::optional<Reason> reason;
  const auto found = convolutionOf(graph, 0, reason);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->groups, 2);
  graph.nodes[0].operands[6].integer = 1;
  EXPECT_EQ(refusal(graph), Reason::native_convolution);
}

TEST(Convolution, RefusesWithAReason) {
  Graph graph = convolution();
  graph.types[3]->grad = true;
  EXPECT_EQ(refusal(graph), Reason::native_autograd);
  graph = convolution();
  graph.types[0]->dtype = "f64";
  EXPECT_EQ(refusal(graph), Reason::native_dtype);
  graph = convolution();
  graph.types[0] = f32({8, 6, 6});
  EXPECT_EQ(refusal(graph), Reason::native_convolution);
  graph = convolution();
  graph.types[0] = f32({0, 8, 6, 6});
  EXPECT_EQ(refusal(graph), Reason::native_empty);
  graph = convolution();
  graph.types[2] = f32({1});
  EXPECT_EQ(refusal(graph), Reason::native_operand);
  graph = convolution();
  graph.frozen[1] = false;
  EXPECT_EQ(refusal(graph), Reason::native_weight);
  graph = convolution();
  graph.types[0].reset();
  EXPECT_EQ(refusal(graph), Reason::native_layout);
  graph = convolution();
  graph.nodes[0].op = "aten::conv1d";
  graph.types[0] = f32({2, 8, 6});
  EXPECT_EQ(refusal(graph), Reason::native_convolution);
  graph = convolution();
  graph.nodes[0].barrier = true;
  EXPECT_EQ(refusal(graph), std::nullopt);
}

TEST(Convolution, AVerifierFindsWhatIsWrong) {
  Graph graph = convolution();
  graph.escapes[3] = true;
  packConvolutions(graph);
  ASSERT_EQ(graph.convolutions.size(), 1u);
  EXPECT_TRUE(verify(graph).empty());
  Graph other = graph;
  other.convolutions[0].result = common::ValueId(0);
  EXPECT_FALSE(verify(other).empty());
  other = graph;
  other.convolutions[0].members.clear();
  EXPECT_FALSE(verify(other).empty());
}

}  // namespace
}  // namespace glowplug::opt
