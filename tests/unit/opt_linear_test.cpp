// Which operators are linear layers with a weight to pack.

#include "opt/linear.h"

#include <gtest/gtest.h>

#include "opt_support.h"

namespace glowplug::opt {
namespace {

using common::Reason;

// %3 = linear(%0: [2,64,256], %1: [128,256], %2: [128])
Graph linear() {
  Graph graph;
  graph.types = {f32({2, 64, 256}), f32({128, 256}), f32({128}), f32({2, 64, 128})};
  graph.escapes.assign(4, false);
  Node node;
  node.op = "aten::linear";
  node.operands = {value(0), value(1), value(2)};
  node.results = {common::ValueId(3)};
  graph.nodes.push_back(std::move(node));
  graph.findUses();
  return graph;
}

std::optional<Reason> refusal(const Graph& graph) {
  std::optional<Reason> reason;
  EXPECT_FALSE(linearOf(graph, graph.nodes[0], reason));
  return reason;
}

TEST(Linear, FindsItsOperands) {
  const Graph graph = linear();
  std::optional<Reason> reason;
  const auto found = linearOf(graph, graph.nodes[0], reason);
  ASSERT_TRUE(found);
  EXPECT_FALSE(reason);
  EXPECT_EQ(found->rows, 128);
  EXPECT_EQ(found->in, 256);
  EXPECT_EQ(found->out, 128);
  EXPECT_FALSE(found->transposed);
}

TEST(Linear, AddmmHasTheWeightTheOtherWayRound) {
  Graph graph = linear();
  graph.types = {f32({128}), f32({64, 256}), f32({256, 128}), f32({64, 128})};
  graph.nodes[0].op = "aten::addmm";
  graph.nodes[0].operands = {value(0), value(1), value(2), integer(1), integer(1)};
  std::optional<Reason> reason;
  const auto found = linearOf(graph, graph.nodes[0], reason);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->transposed);
  EXPECT_EQ(found->in, 256);
  graph.nodes[0].operands[3] = integer(2);
  EXPECT_EQ(refusal(graph), std::nullopt);  // not a layer at all
}

TEST(Linear, SmallWeightsHaveToDoMore) {
  Graph graph = linear();
  graph.types = {f32({144, 48}), f32({192, 48}), f32({192}), f32({144, 192})};
  EXPECT_EQ(refusal(graph), Reason::native_small);
  graph.types = {f32({9, 192}), f32({768, 192}), f32({768}), f32({9, 768})};
  std::optional<Reason> reason;
  EXPECT_TRUE(linearOf(graph, graph.nodes[0], reason));
}

TEST(Linear, RefusesWithAReason) {
  Graph graph = linear();
  graph.types[3]->grad = true;
  EXPECT_EQ(refusal(graph), Reason::native_autograd);
  graph = linear();
  graph.types[0] = f32({2, 1, 256});
  graph.types[3] = f32({2, 1, 128});
  EXPECT_EQ(refusal(graph), Reason::native_small);
  graph = linear();
  graph.types[0]->strides = {256, 512, 1};
  EXPECT_EQ(refusal(graph), Reason::native_layout);
  graph = linear();
  graph.types[0]->dtype = "bf16";
  EXPECT_EQ(refusal(graph), Reason::native_dtype);
  graph = linear();
  graph.types[2] = f32({1});
  EXPECT_EQ(refusal(graph), Reason::native_operand);
  graph = linear();
  graph.nodes[0].barrier = true;
  EXPECT_EQ(refusal(graph), std::nullopt);
}

TEST(Linear, RefusesAWeightThatIsComputed) {
  Graph graph = linear();
  Node made;
  made.op = "aten::mul";
  made.operands = {value(1), integer(2)};
  made.results = {common::ValueId(1)};
  graph.nodes[0].operands[1] = value(4);
  made.operands[0] = value(1);
  made.results[0] = common::ValueId(4);
  graph.types.push_back(graph.types[1]);
  graph.escapes.push_back(false);
  graph.nodes.insert(graph.nodes.begin(), made);
  graph.findUses();
  std::optional<Reason> reason;
  EXPECT_FALSE(linearOf(graph, graph.nodes[1], reason));
  EXPECT_EQ(reason, Reason::native_weight);
}

}  // namespace
}  // namespace glowplug::opt
