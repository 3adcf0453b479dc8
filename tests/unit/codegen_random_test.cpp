// Random kernels: text form, verifier, and machine code against the interpreter. Failures name the
// seed; GLOWPLUG_SEED and GLOWPLUG_COUNT choose others (the target random_kernels runs 5000).
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen_random.h"
#include "codegen_support.h"
#include "lower/cost.h"
#include "lower/parser.h"
#include "lower/printer.h"

namespace glowplug::codegen {
namespace {

using namespace testing;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(RandomKernels, AreTheSameAsMachineCodeAndAsText) {
  const uint64_t first = setting("GLOWPLUG_SEED", 1);
  const uint64_t count = setting("GLOWPLUG_COUNT", 120);
  uint64_t errors = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomKernel made = randomKernel(seed);
    const std::string text = lower::print(made.kernel);
    const lower::Parsed parsed = lower::parse(text);
    ASSERT_FALSE(parsed.error) << "seed " << seed << ": " << parsed.error->text() << "\n" << text;
    ASSERT_EQ(parsed.kernel, made.kernel) << "seed " << seed << "\n" << text;
    Random random(seed);
    const Input input = randomInput(made.kernel, made.sizes, random);
    errors += interpreted(made.kernel, input).error.kind != 0;
    expectSame(made.kernel, input, Tolerance{2}, Tolerance{2});
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  // Else the test compares nothing.
  EXPECT_LT(errors * 4, count);
}

}  // namespace
}  // namespace glowplug::codegen
