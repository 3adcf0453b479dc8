// The verifier: what it says of one good kernel with one thing changed.
#include "lower/verifier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lower/parser.h"

namespace glowplug::lower {
namespace {

constexpr const char* kGood = R"(kernel good
sizes n m
scalars
  eps f64
buffers
  x f32 in
  ids i64 in
  y f32 out
nest i0 [n]
  %0: i64 = load ids [i0]
  %1: i64 = check %0 [n]
  vector i1 [m]
    %2: f32 = load x [%1*m + i1]
    %3: f32 = reduce sum %2 over i1
    %4: f32 = abs %2
  serial i2 [m]
    %5: f32 = load x [i0*m + i2]
    %6: f32 = scan max %5 over i2
    %7: f32 = div %6 %3
    store y [i0*m + i2] %7
)";

struct Change {
  const char* from;
  const char* to;
  const char* messages;
};

class LoopVerifier : public testing::TestWithParam<Change> {};

TEST_P(LoopVerifier, NamesWhatIsWrong) {
  std::string text = kGood;
  const size_t place = text.find(GetParam().from);
  ASSERT_NE(place, std::string::npos) << GetParam().from;
  text.replace(place, std::string(GetParam().from).size(), GetParam().to);
  const Parsed parsed = parse(text);
  ASSERT_FALSE(parsed.error) << parsed.error->text();
  EXPECT_EQ(fmt::format("{}", fmt::join(verify(parsed.kernel), "; ")), GetParam().messages);
}

INSTANTIATE_TEST_SUITE_P(
    All, LoopVerifier,
    testing::Values(
        Change{"good", "good", ""},
        Change{"abs %2", "abs %9", "%4: f32 = abs %9: value %9 is not known here"},
        Change{"abs %2", "abs %3", "%4: f32 = abs %3: value %3 is not known here"},
        Change{"%7: f32 = div %6 %3", "%7: f32 = div %6 %4",
               "%7: f32 = div %6 %4: value %4 is not known here"},
        Change{"%4: f32 = abs", "%2: f32 = abs", "%2: f32 = abs %2: value %2 is made twice"},
        Change{"%4: f32 = abs %2", "%4: f64 = abs %2",
               "%4: f64 = abs %2: the result is f32, not f64"},
        Change{"%4: f32 = abs %2", "%4: i64 = abs %1", ""},
        Change{"%4: f32 = abs %2", "%4: f32 = not %2", "%4: f32 = not %2: does not take f32"},
        Change{"x f32 in", "x f32 out",
               "%2: f32 = load x [%1*m + i1]: 'x' is only written; %5: f32 = load x [i0*m + i2]: "
               "'x' is only written"},
        Change{"y f32 out", "y f32 in", "store y [i0*m + i2] %7: 'y' is only read"},
        Change{"y f32 out", "y f64 out", "store y [i0*m + i2] %7: value %7 is f32, not f64"},
        Change{"over i1", "over i0",
               "%3: f32 = reduce sum %2 over i0: goes over a parallel loop; %7: f32 = div %6 %3: "
               "value %3 is not known here"},
        Change{"over i2", "over i1",
               "%6: f32 = scan max %5 over i1: the loop it goes over is not around it"},
        Change{"[i0*m + i2] %7", "[i0*m + i3] %7",
               "store y [i0*m + i3] %7: i3 is not the variable of a loop around"},
        Change{"serial i2 [m]", "serial i2 [i0]",
               "serial i2 [i0]: an extent may depend only on sizes"},
        Change{"serial i2 [m]", "vector i2 [m]",
               "%6: f32 = scan max %5 over i2: there is a vector loop in between"},
        Change{"serial i2", "serial i0",
               "serial i0 [m]: there are two loops i0; %5: f32 = load x [i0*m + i2]: i2 is not the "
               "variable of a loop around; %6: f32 = scan max %5 over i2: the loop it goes over is "
               "not around it; store y [i0*m + i2] %7: i2 is not the variable of a loop around"},
        Change{"nest i0 [n]", "nest i0 [n] vector",
               "vector i1 [m]: a vector loop inside a vector loop"},
        Change{"eps f64", "eps f32", "kernel: scalar 'eps' is neither f64 nor i64"},
        Change{"eps f64", "eps f64\n  eps i64", "kernel: 'eps' is named twice"},
        Change{"x f32 in", "x f32 in\n  x f32 in", "kernel: 'x' is named twice"},
        Change{"check %0 [n]", "check %0 [i0]",
               "%1: i64 = check %0 [i0]: the extent may depend only on sizes"},
        Change{"[%1*m + i1]", "[%2*m + i1]",
               "%2: f32 = load x [%2*m + i1]: value %2 is not known here"}));

}  // namespace
}  // namespace glowplug::lower
