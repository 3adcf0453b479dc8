// Groups of a graph that become kernels, run by the interpreter.
#include "lower/fused.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/parser.h"
#include "lower/interpreter.h"
#include "lower/printer.h"
#include "opt/passes.h"

namespace glowplug::lower {
namespace {

constexpr const char* kHead = R"(trace rows
sources
  $0 = callee
  $1 = arg 0
)";

opt::Graph fusedGraph(const std::string& body, std::vector<uint32_t> escaping) {
  const ir::Parsed parsed = ir::parse(kHead + body);
  EXPECT_FALSE(parsed.error) << parsed.error->text();
  std::vector<bool> escapes(parsed.trace.values.size(), false);
  for (const uint32_t value : escaping) escapes[value] = true;
  opt::Graph graph = opt::graphOf(parsed.trace, 0, parsed.trace.events.size(), escapes,
                                  [](common::OperatorId) { return false; });
  opt::runPasses(graph);
  return graph;
}

std::vector<float> run(const FusedKernel& fused, std::vector<float> in, size_t count) {
  std::vector<float> out(count, -1);
  std::vector<void*> buffers = {in.data(), out.data()};
  std::vector<int64_t> lengths = {static_cast<int64_t>(in.size()), static_cast<int64_t>(count)};
  buffers.resize(fused.kernel->buffers.size());
  lengths.resize(buffers.size());
  KernelError error;
  interpret(*fused.kernel, {buffers.data(), fused.sizes.data(), nullptr, &error}, lengths);
  EXPECT_EQ(error.kind, KernelError::None);
  return out;
}

TEST(FusedGroups, SoftmaxWithWhatComesBeforeIsOneNest) {
  const opt::Graph graph = fusedGraph(R"(events
  %0: `f32[2,4]{1,2} cpu` from $1 = input
  %1: `f32[2,4]{4,1} cpu` = op aten::mul.Tensor(%0, 2)
  %2: `f32[2,4]{4,1} cpu` = op aten::softmax.int(%1, -1, None)
constants
  ^0 2
  ^1 -1
  ^2 None
metas
  &0 `f32[2,4]{1,2} cpu`
  &1 `f32[2,4]{4,1} cpu`
operators
  ~0 aten::mul.Tensor
  ~1 aten::softmax.int
)",
                                      {2});
  ASSERT_EQ(graph.groups.size(), 1u);
  const FusedKernel fused = lowerFused(graph, graph.groups[0]);
  ASSERT_TRUE(fused.kernel) << fused.refusal;
  EXPECT_EQ(fused.kernel->nests.size(), 1u);
  const std::vector<float> in = {0, 1, 2, -1, 0.5, 3, 1, 1};  // column by column
  const std::vector<float> out = run(fused, in, 8);
  for (size_t row = 0; row < 2; ++row) {
    double total = 0;
    for (size_t j = 0; j < 4; ++j) total += std::exp(2 * in[row + 2 * j]);
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(out[row * 4 + j], std::exp(2 * in[row + 2 * j]) / total, 1e-6);
    }
  }
}

TEST(FusedGroups, AReductionMayLeaveItsDimensionOut) {
  const opt::Graph graph = fusedGraph(R"(events
  %0: `f32[3,2]{2,1} cpu` from $1 = input
  %1: `f32[3,2]{2,1} cpu` = op aten::neg(%0)
  %2: `f32[3]{1} cpu` = op aten::sum.dim_IntList(%1, [1], False, None)
constants
  ^0 [1]
  ^1 False
  ^2 None
metas
  &0 `f32[3,2]{2,1} cpu`
  &1 `f32[3]{1} cpu`
operators
  ~0 aten::neg
  ~1 aten::sum.dim_IntList
)",
                                      {2});
  ASSERT_EQ(graph.groups.size(), 1u);
  const FusedKernel fused = lowerFused(graph, graph.groups[0]);
  ASSERT_TRUE(fused.kernel) << fused.refusal;
  EXPECT_EQ(run(fused, {1, 2, 3, 4, 5, 6}, 3), (std::vector<float>{-3, -7, -11}));
}

TEST(FusedGroups, ALinearLayerMakesRowsOfAnotherLength) {
  const opt::Graph graph = fusedGraph(R"(events
  %0: `f32[2,3]{3,1} cpu` from $1 = input
  %1: `f32[5,3]{3,1} cpu` from $1 = input
  %2: `f32[5]{1} cpu` from $1 = input
  %3: `f32[2,3]{3,1} cpu` = op aten::neg(%0)
  %4: `f32[2,5]{5,1} cpu` = op aten::linear(%3, %1, %2)
  %5: `f32[2,5]{5,1} cpu` = op aten::relu(%4)
  %6: `f32[2,1]{1,1} cpu` = op aten::mean.dim(%5, [-1], True, None)
constants
  ^0 [-1]
  ^1 True
  ^2 None
metas
  &0 `f32[2,3]{3,1} cpu`
  &1 `f32[5,3]{3,1} cpu`
  &2 `f32[5]{1} cpu`
  &3 `f32[2,5]{5,1} cpu`
  &4 `f32[2,1]{1,1} cpu`
operators
  ~0 aten::neg
  ~1 aten::linear
  ~2 aten::relu
  ~3 aten::mean.dim
)",
                                      {6});
  ASSERT_EQ(graph.groups.size(), 1u);
  const FusedKernel fused = lowerFused(graph, graph.groups[0]);
  ASSERT_TRUE(fused.kernel) << fused.refusal;
  std::vector<float> x = {1, -2, 0.5, 3, 0, -1}, w(15), c = {0.5, 0, -1, 2, 1}, out(2);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 4) - 1.5f;
  std::vector<void*> buffers = {x.data(), w.data(), c.data(), out.data()};
  std::vector<int64_t> lengths = {6, 15, 5, 2};
  buffers.resize(fused.kernel->buffers.size());
  lengths.resize(buffers.size());
  KernelError error;
  interpret(*fused.kernel, {buffers.data(), fused.sizes.data(), nullptr, &error}, lengths);
  for (size_t row = 0; row < 2; ++row) {
    float mean = 0;
    for (size_t j = 0; j < 5; ++j) {
      float sum = c[j];
      for (size_t k = 0; k < 3; ++k) sum -= x[row * 3 + k] * w[j * 3 + k];
      mean += std::max(sum, 0.0f) / 5;
    }
    EXPECT_NEAR(out[row], mean, 1e-6);
  }
}

}  // namespace
}  // namespace glowplug::lower
