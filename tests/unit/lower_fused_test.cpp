// Groups of a graph that become kernels, run by the interpreter.
#include "lower/fused.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace glowplug::lower
