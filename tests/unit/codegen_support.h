// Runs kernels through the interpreter and through machine code, and compares what they wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/target.h"
#include "lower/launch.h"
#include "lower/loop_ir.h"

namespace glowplug::codegen::testing {

using Random = std::mt19937_64;
using Bytes = std::vector<char>;

// What one run of a kernel is given.
struct Input {
  std::vector<int64_t> sizes;
  std::vector<lower::Number> scalars;
  std::vector<Bytes> buffers;  // parallel to the kernel's; of Locals empty
};

struct Outcome {
  std::vector<Bytes> buffers;
  lower::KernelError error;
};

// How far results may be from the interpreter's: both bounds must be broken to be too far.
struct Tolerance {
  int64_t ulps = 0;
  double relative = 0;
};

// Parses and verifies; fails the test and gives an empty kernel if there is anything wrong.
lower::Kernel kernelOf(std::string_view text);

// Elements that each buffer needs at least, from the loops' extents and checked indices.
std::vector<int64_t> neededLengths(const lower::Kernel& kernel, const std::vector<int64_t>& sizes);

// Numbers of the dtype, a quarter of them special: zeros, infinities, NaN, denormals, extremes.
lower::Number randomNumber(lower::DType dtype, Random& random);
Bytes randomBytes(lower::DType dtype, int64_t count, Random& random);
Input randomInput(const lower::Kernel& kernel, std::vector<int64_t> sizes, Random& random);

Outcome interpreted(const lower::Kernel& kernel, const Input& input);

// Compiles and runs. The items of each nest are shared out in pieces of random lengths in random
// order, or all at once without `pieces`. Buffers lie against memory that must not be touched.
Outcome compiled(const lower::Kernel& kernel, const Input& input, const Target& target,
                 Random* pieces = nullptr);

// The first difference, in words; empty if there is none. NaNs are alike.
std::string difference(const lower::Kernel& kernel, const Outcome& wanted, const Outcome& given,
                       Tolerance tolerance = {});

// The targets that this machine runs.
std::vector<Target> targetsHere();

// Fails the test unless machine code of all targets gives what the interpreter gives, and gives the
// same bits, or what `inPieces` allows, when items are run in pieces.
void expectSame(const lower::Kernel& kernel, const Input& input, Tolerance tolerance = {},
                Tolerance inPieces = {});
void expectSame(std::string_view text, const std::vector<int64_t>& sizes, Tolerance tolerance = {},
                uint64_t seed = 1);

}  // namespace glowplug::codegen::testing
