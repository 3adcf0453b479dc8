// Groups of pointwise operators: the kernels they become, as text.
#include "lower/pointwise_group.h"

#include <gtest/gtest.h>

#include "lower/printer.h"

namespace glowplug::lower {
namespace {

GroupOperand input(size_t index) { return {GroupOperand::Input, index, 0, 0}; }
GroupOperand node(size_t index) { return {GroupOperand::Node, index, 0, 0}; }
GroupOperand real(double number) { return {GroupOperand::Real, 0, 0, number}; }

// relu(x * scale + x.t()) and whether it is positive; `scale` is a row.
PointwiseGroup example(DType dtype) {
  using enum GroupInput::Stride;
  PointwiseGroup group{"example", 2, {}, {}, {2, 3}};
  group.inputs = {{dtype, {Any, One}, true}, {dtype, {Zero, One}, true}, {dtype, {One, Any}, true}};
  group.nodes = {{"aten::mul.Tensor", {input(0), input(1)}, "", dtype},
                 {"aten::add.Tensor", {node(0), input(2)}, "", dtype},
                 {"aten::relu", {node(1)}, "", dtype},
                 {"aten::gt.Scalar", {node(2), real(0.1)}, "", DType::Bool}};
  return group;
}

TEST(PointwiseGroups, BecomeOneNest) {
  const LoweredGroup lowered = lowerGroup(example(DType::F32));
  ASSERT_TRUE(lowered.kernel) << lowered.refusal;
  EXPECT_EQ(print(*lowered.kernel), R"(kernel example
sizes n0 n1 s0_0 s2_1
buffers
  in0 f32 in
  in1 f32 in
  in2 f32 in
  out0 f32 out
  out1 bool out
nest i0 [n0] i1 [n1] vector
  %0: f32 = load in0 [i0*s0_0 + i1]
  %1: f32 = load in1 [i1]
  %2: f32 = load in2 [i0 + i1*s2_1]
  %3: f32 = mul %0 %1
  %4: f32 = add %3 %2
  %5: f32 = constant 0
  %6: bool = lt %4 %5
  %7: f32 = select %6 %5 %4
  %8: f32 = constant 0.1
  %9: bool = gt %7 %8
  store out0 [i1 + i0*n1] %7
  store out1 [i1 + i0*n1] %9
)");
}

TEST(PointwiseGroups, RoundWhereEagerRounds) {
  const LoweredGroup lowered = lowerGroup(example(DType::BF16));
  ASSERT_TRUE(lowered.kernel) << lowered.refusal;
  const std::string text = print(*lowered.kernel);
  // The product is rounded, and is taken up again from what was rounded.
  EXPECT_NE(text.find("= mul %3 %4\n  %6: bf16 = cast %5\n  %7: f32 = cast %6\n"),
            std::string::npos)
      << text;
  // So is the number that bf16 elements are compared with.
  EXPECT_NE(text.find(": bf16 = constant 0.1\n"), std::string::npos) << text;
}

TEST(PointwiseGroups, AreRefusedWithTheReason) {
  PointwiseGroup group = example(DType::F32);
  group.nodes[1].op = "aten::cumsum";
  const LoweredGroup lowered = lowerGroup(group);
  EXPECT_FALSE(lowered.kernel);
  EXPECT_EQ(lowered.refusal, "no rule for aten::cumsum");
}

TEST(PointwiseGroups, WithoutDimensions) {
  PointwiseGroup group{"single", 0, {{DType::F32, {}, false}}, {}, {0}};
  group.nodes = {{"aten::exp", {input(0)}, "", DType::F32}};
  const LoweredGroup lowered = lowerGroup(group);
  ASSERT_TRUE(lowered.kernel) << lowered.refusal;
  EXPECT_EQ(print(*lowered.kernel), R"(kernel single
buffers
  in0 f32 in
  out0 f32 out
nest
  %0: f32 = load in0 [0]
  %1: f32 = exp %0
  store out0 [0] %1
)");
}

}  // namespace
}  // namespace glowplug::lower
