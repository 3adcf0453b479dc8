// The loop IR's text form: print = parse, and what is said of text that does not parse.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lower/affine.h"
#include "lower/builder.h"
#include "lower/cost.h"
#include "lower/parser.h"
#include "lower/printer.h"

namespace glowplug::lower {
namespace {

// One of everything.
constexpr const char* kEverything = R"(kernel everything
sizes n m
scalars
  alpha f64
  count i64
buffers
  x f32 in
  ids i64 in
  keep bool in
  y f32 out
  z bf16 inout
  row f32 local [m + 4]
nest i0 [n] i1 [3]
  %0: f64 = scalar alpha
  %1: f32 = cast %0
  %2: f32 = constant -0.1
  %3: i64 = constant -7
  %4: i64 = index [i0*m*2 - i1 + 3]
  %5: i64 = load ids [i0]
  %6: i64 = check %5 [n*m - 1] wrap
  serial i2 [m] limit [i0 + 1]
    %7: f32 = load x [%6*m + i2]
    %8: f32 = scan sum %7 over i2
    %9: f32 = fma %7 %8 %1
    store row [i2] %9
  vector i3 [m]
    %10: bool = load keep [i3]
    %11: f32 = load row [i3] if %10
    %12: i64 = index [i3]
    %13: i64 = reduce argmax %11 %12 over i3
    store y [i0*m*3 + i1*m + i3] %11 if %10
nest
  %14: bf16 = load z [0]
  store z [1] %14
nest i4 [n] vector
  %15: f32 = constant inf
  store y [i4] %15
)";

TEST(Text, PrintsWhatItParsed) {
  const Parsed parsed = parse(kEverything);
  ASSERT_FALSE(parsed.error) << parsed.error->text();
  EXPECT_EQ(print(parsed.kernel), kEverything);
  EXPECT_EQ(parsed.kernel.nests.size(), 3U);
  EXPECT_EQ(parsed.kernel.nests[0].body[7].limits.size(), 1U);
  const Parsed again = parse("\n; a comment\n" + print(parsed.kernel) + "\n");
  ASSERT_FALSE(again.error);
  EXPECT_EQ(again.kernel, parsed.kernel);
}

struct Broken {
  const char* from;
  const char* to;
  const char* message;
};

class TextErrors : public testing::TestWithParam<Broken> {};

TEST_P(TextErrors, AreNamed) {
  std::string text = kEverything;
  const size_t place = text.find(GetParam().from);
  ASSERT_NE(place, std::string::npos);
  text.replace(place, std::string(GetParam().from).size(), GetParam().to);
  const Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.error);
  EXPECT_EQ(parsed.error->text(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, TextErrors,
    testing::Values(Broken{"x f32 in", "x f33 in", "7:8: unknown dtype 'f33'"},
                    Broken{"x f32 in", "x f32 inside", "7:15: unknown role 'inside'"},
                    Broken{"fma %7", "fmaa %7", "24:19: unknown statement 'fmaa'"},
                    Broken{"load x [", "load w [", "22:21: unknown buffer 'w'"},
                    Broken{"[i0*m*2 - i1 + 3]", "[i0*k]", "18:24: unknown size 'k'"},
                    Broken{"scan sum", "scan most", "23:24: unknown reduction 'most'"},
                    Broken{"    store row", "      store row", "25:7: indented too far"},
                    Broken{"limit [i0 + 1]", "until [i0 + 1]", "21:22: expected 'limit'"}));

TEST(Affine, KeepsLikeTermsTogether) {
  const Affine i = loopIndex(LoopId(0)), n = sizeIndex(SizeId(0)), m = sizeIndex(SizeId(1));
  EXPECT_EQ((i + n) * m - n * m, i * m);
  EXPECT_EQ(i * 3 - i * 3, constantIndex(0));
  EXPECT_EQ(factorOf(i * n * m + i * 2 + n, LoopId(0)), n * m + 2);
  EXPECT_EQ(without(i * n + m + 1, LoopId(0)), m + 1);
  const int64_t sizes[] = {5, 7};
  EXPECT_EQ(evaluate(n * m * 2 - 1, sizes), 69);
}

TEST(Costs, CountItemsBytesAndFlops) {
  const Parsed parsed = parse(kEverything);
  const int64_t sizes[] = {10, 8};
  const Cost cost = costOf(parsed.kernel, parsed.kernel.nests[0], sizes);
  EXPECT_EQ(cost.items, 30);
  // ids once; x, keep and y eight times; row is Local.
  EXPECT_EQ(cost.bytesPerItem, 8 + 8 * (4 + 1 + 4));
  EXPECT_EQ(localBytes(parsed.kernel, sizes), 64);
}

}  // namespace
}  // namespace glowplug::lower
