// Whole kernels, written out: reductions, several loops over a row, masks, indirect loads, strides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen_support.h"
#include "lower/affine.h"
#include "lower/tables.h"

namespace glowplug::codegen {
namespace {

using namespace testing;
using lower::DType;

// Around the lanes of each target, their groups, and nothing at all.
const int64_t kLengths[] = {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 257};

// In small whole numbers, so that sums and products are exact in any order.
Input wholeInput(const lower::Kernel& kernel, const std::vector<int64_t>& sizes, uint64_t seed) {
  Random random(seed);
  Input input = randomInput(kernel, sizes, random);
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const DType dtype = kernel.buffers[i].dtype;
    if (!lower::isFloat(dtype)) continue;
    const auto bytes = static_cast<size_t>(lower::bytesOf(dtype));
    for (size_t at = 0; at < input.buffers[i].size(); at += bytes) {
      const double value = static_cast<double>(random() % 9) - 4;
      lower::writeNumber(dtype, input.buffers[i].data() + at, {.real = value});
    }
  }
  return input;
}

TEST(Pointwise, ChainOverThreeDimensionsWithBroadcasting) {
  constexpr const char* kText = R"(kernel chain
sizes a b c
buffers
  x f32 in
  row f32 in
  column f32 in
  y f32 out
nest i0 [a] i1 [b] i2 [c] vector
  %0: f32 = load x [i0*b*c + i1*c + i2]
  %1: f32 = load row [i2]
  %2: f32 = load column [i1]
  %3: f32 = mul %0 %1
  %4: f32 = add %3 %2
  %5: f32 = constant 0
  %6: f32 = maximum %4 %5
  store y [i0*b*c + i1*c + i2] %6
)";
  for (const int64_t c : kLengths) expectSame(kText, {2, 3, c});
  expectSame(kText, {0, 3, 17});
}

TEST(Pointwise, TransposedAndStridedAccess) {
  constexpr const char* kText = R"(kernel transpose
sizes n m s
buffers
  x f32 in
  y f32 out
nest i0 [n] i1 [m] vector
  %0: f32 = load x [i1*s*n + i0*s + 1]
  store y [i0*m*2 + i1*2] %0
)";
  for (const int64_t m : kLengths) expectSame(kText, {5, m, 3});
}

TEST(Pointwise, InPlaceWithScalarsAndRoundingBetweenOperators) {
  constexpr const char* kText = R"(kernel halves
sizes n
scalars
  alpha f64
  shift i64
buffers
  x bf16 inout
nest i0 [n] vector
  %0: bf16 = load x [i0]
  %1: f32 = cast %0
  %2: f64 = scalar alpha
  %3: f32 = cast %2
  %4: f32 = mul %1 %3
  %5: bf16 = cast %4
  %6: f32 = cast %5
  %7: i64 = scalar shift
  %8: f32 = cast %7
  %9: f32 = add %6 %8
  %10: bf16 = cast %9
  store x [i0] %10
)";
  for (const int64_t n : kLengths) expectSame(kText, {n});
}

TEST(Pointwise, MasksOfLoadsAndStores) {
  constexpr const char* kText = R"(kernel padded
sizes n m
buffers
  x f32 in
  keep bool in
  y f32 out
nest i0 [n] vector
  %0: i64 = index [i0]
  %1: i64 = index [m]
  %2: bool = lt %0 %1
  %3: f32 = load x [i0] if %2
  %4: bool = load keep [i0]
  store y [i0] %3 if %4
)";
  for (const int64_t n : kLengths) expectSame(kText, {n, n / 2});
}

TEST(Pointwise, IndirectLoadsAndStores) {
  constexpr const char* kText = R"(kernel embedding
sizes n d v
buffers
  ids i64 in
  table f32 in
  y f32 out
nest i0 [n]
  %0: i64 = load ids [i0]
  %1: i64 = check %0 [v] wrap
  vector i1 [d]
    %2: f32 = load table [%1*d + i1]
    store y [i0*d + i1] %2
nest i2 [n] vector
  %3: i64 = load ids [i2]
  %4: i64 = check %3 [v] wrap
  %5: f32 = load table [%4*d]
  store y [i2 + n*d] %5
)";
  const lower::Kernel kernel = kernelOf(kText);
  for (const int64_t n : kLengths) {
    Random random(2);
    Input input = randomInput(kernel, {n, 19, 11}, random);
    for (int64_t i = 0; i < n; ++i) {
      lower::writeNumber(DType::I64, input.buffers[0].data() + i * 8,
                         {.integer = static_cast<int64_t>(random() % 22) - 11});
    }
    expectSame(kernel, input);
    if (n == 0) continue;
    for (const int64_t bad : {int64_t{11}, int64_t{-12}, std::numeric_limits<int64_t>::min()}) {
      lower::writeNumber(DType::I64, input.buffers[0].data() + (n - 1) * 8, {.integer = bad});
      for (const Target& target : targetsHere()) {
        const lower::KernelError error = compiled(kernel, input, target).error;
        EXPECT_EQ(error.kind, lower::KernelError::IndexOutOfRange);
        EXPECT_EQ(error.index, bad) << target.name;
        EXPECT_EQ(error.extent, 11);
      }
    }
  }
}

// Every reduction of every dtype, over lanes, over a serial loop in lanes, and over both.
TEST(Reductions, OfAllDTypes) {
  constexpr const char* kText = R"(kernel reduce
sizes n m
buffers
  x {0} in
  y {2} out
  z {2} out
  w {2} out
nest i0 [n]
  vector i1 [m]
    %0: {0} = load x [i0*m + i1]
    %1: i64 = index [i1]
    %2: {2} = reduce {1} %0{3} over i1
  store y [i0] %2
nest i2 [n] vector
  serial i3 [m]
    %3: {0} = load x [i2*m + i3]
    %4: i64 = index [i3]
    %5: {2} = reduce {1} %3{4} over i3
  store z [i2] %5
nest
  serial i4 [n]
    vector i5 [m]
      %6: {0} = load x [i4*m + i5]
      %7: i64 = index [i4*m + i5]
      %8: {2} = reduce {1} %6{5} over i4
  store w [0] %8
)";
  for (size_t r = 0; r < lower::kindCount<lower::Reduction>(); ++r) {
    const auto reduction = static_cast<lower::Reduction>(r);
    if (reduction >= lower::Reduction::WelfordMean) continue;
    for (size_t d = 0; d < lower::kindCount<DType>(); ++d) {
      const auto dtype = static_cast<DType>(d);
      const lower::ReductionInfo& row = lower::info(reduction);
      if (!lower::takes(row.dtypes, dtype)) continue;
      const bool pair = row.operands == 2;
      const std::string text = fmt::format(kText, lower::nameOf(dtype), row.name,
                                           lower::nameOf(lower::resultOf(reduction, dtype)),
                                           pair ? " %1" : "", pair ? " %4" : "", pair ? " %7" : "");
      const lower::Kernel kernel = kernelOf(text);
      const bool whole = reduction == lower::Reduction::Sum || reduction == lower::Reduction::Prod;
      for (const int64_t m : {0, 1, 5, 16, 40, 131}) {
        Random random(r * 100 + d);
        expectSame(kernel,
                   whole ? wholeInput(kernel, {9, whole && lower::isFloat(dtype) ? m % 9 : m}, 4)
                         : randomInput(kernel, {9, m}, random));
      }
      if (reduction == lower::Reduction::Sum) expectSame(kernel, wholeInput(kernel, {3, 2051}, 5));
    }
  }
}

TEST(Reductions, FirstNanIsTheLargest) {
  constexpr const char* kText = R"(kernel argmax
sizes m
buffers
  x f32 in
  at i64 out
  top f32 out
nest
  vector i0 [m]
    %0: f32 = load x [i0]
    %1: i64 = index [i0]
    %2: i64 = reduce argmax %0 %1 over i0
    %3: f32 = reduce max %0 over i0
  store at [0] %2
  store top [0] %3
)";
  const lower::Kernel kernel = kernelOf(kText);
  for (const Target& target : targetsHere()) {
    Random random(1);
    Input input = wholeInput(kernel, {200}, 1);
    for (const int64_t place : {190, 133, 71}) {
      lower::writeNumber(DType::F32, input.buffers[0].data() + place * 4, {.real = std::nan("")});
    }
    const Outcome out = compiled(kernel, input, target);
    EXPECT_EQ(lower::readNumber(DType::I64, out.buffers[1].data()).integer, 71);
    EXPECT_TRUE(std::isnan(lower::readNumber(DType::F32, out.buffers[2].data()).real));
  }
}

TEST(Reductions, SumsAreAccurate) {
  constexpr const char* kText = R"(kernel sums
sizes n m
buffers
  x f32 in
  y f32 out
  mean f32 out
  spread f32 out
nest i0 [n]
  vector i1 [m]
    %0: f32 = load x [i0*m + i1]
    %1: f32 = abs %0
    %2: f32 = constant 1
    %3: f32 = minimum %1 %2
    %4: f32 = reduce sum %3 over i1
    %5: f32 = reduce welford_mean %3 over i1
    %6: f32 = reduce welford_m2 %3 over i1
  store y [i0] %4
  store mean [i0] %5
  store spread [i0] %6
)";
  const lower::Kernel kernel = kernelOf(kText);
  for (const int64_t m : {0, 1, 2, 17, 100, 5000}) {
    Random random(3);
    Input input = randomInput(kernel, {7, m}, random);
    for (int64_t i = 0; i < 7 * m; ++i) {
      lower::writeNumber(DType::F32, input.buffers[0].data() + i * 4,
                         {.real = static_cast<double>(random() % 1000) / 999});
    }
    expectSame(kernel, input, Tolerance{0, 2e-5});
  }
}

constexpr const char* kSoftmax = R"(kernel softmax
sizes n m
buffers
  x f32 in
  y f32 out
nest i0 [n]
  vector i1 [m]
    %0: f32 = load x [i0*m + i1]
    %1: f32 = reduce max %0 over i1
  vector i2 [m]
    %2: f32 = load x [i0*m + i2]
    %3: f32 = sub %2 %1
    %4: f32 = exp %3
    %5: f32 = reduce sum %4 over i2
    store y [i0*m + i2] %4
  vector i3 [m]
    %6: f32 = load y [i0*m + i3]
    %7: f32 = div %6 %5
    store y [i0*m + i3] %7
)";

TEST(Rows, Softmax) {
  std::string text = kSoftmax;
  text.replace(text.find("y f32 out"), 9, "y f32 inout");
  for (const int64_t m : kLengths) expectSame(text, {6, m}, Tolerance{0, 1e-6});
}

TEST(Rows, LayerNormWithLocalMemory) {
  constexpr const char* kText = R"(kernel layer_norm
sizes n m
scalars
  eps f64
buffers
  x bf16 in
  weight f32 in
  y bf16 out
  row f32 local [m]
nest i0 [n]
  vector i1 [m]
    %0: bf16 = load x [i0*m + i1]
    %1: f32 = cast %0
    store row [i1] %1
    %2: f32 = reduce welford_mean %1 over i1
    %3: f32 = reduce welford_m2 %1 over i1
  %4: i64 = index [m]
  %5: f32 = cast %4
  %6: f32 = div %3 %5
  %7: f64 = scalar eps
  %8: f32 = cast %7
  %9: f32 = abs %8
  %10: f32 = add %6 %9
  %11: f32 = rsqrt %10
  vector i2 [m]
    %12: f32 = load row [i2]
    %13: f32 = sub %12 %2
    %14: f32 = mul %13 %11
    %15: f32 = load weight [i2]
    %16: f32 = mul %14 %15
    %17: bf16 = cast %16
    store y [i0*m + i2] %17
)";
  const lower::Kernel kernel = kernelOf(kText);
  for (const int64_t m : kLengths) {
    Input input = wholeInput(kernel, {5, m}, 8);
    input.scalars[0].real = 1e-5;
    Random random(4);
    for (int64_t i = 0; i < 5 * m; ++i) {
      lower::writeNumber(DType::BF16, input.buffers[0].data() + i * 2,
                         {.real = static_cast<double>(random() % 64) / 16});
    }
    expectSame(kernel, input, Tolerance{2, 1e-5});
  }
}

TEST(Rows, TriangularLimitsAndScans) {
  constexpr const char* kText = R"(kernel running
sizes n m
buffers
  x f32 in
  sums f32 out
  most i32 out
nest i0 [n]
  vector i1 [m] limit [i0 + 1]
    %0: f32 = load x [i0*m + i1]
    %1: f32 = reduce sum %0 over i1
  store sums [i0 + n*m] %1
nest i2 [n] vector
  serial i3 [m]
    %2: f32 = load x [i2*m + i3]
    %3: f32 = scan sum %2 over i3
    store sums [i2*m + i3] %3
    %4: i32 = cast %2
    %5: i32 = scan max %4 over i3
    store most [i2*m + i3] %5
)";
  const lower::Kernel kernel = kernelOf(kText);
  for (const int64_t m : kLengths) expectSame(kernel, wholeInput(kernel, {37, m}, 9));
}

}  // namespace
}  // namespace glowplug::codegen
