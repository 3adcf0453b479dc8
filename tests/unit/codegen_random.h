// Random kernels whose results do not depend on the order of reductions or on the math library but
// where a tolerance of a few units in the last place allows it.
#pragma once

#include <cstdint>
#include <vector>

#include "lower/loop_ir.h"

namespace glowplug::codegen::testing {

struct RandomKernel {
  lower::Kernel kernel;
  std::vector<int64_t> sizes;
};

RandomKernel randomKernel(uint64_t seed);

}  // namespace glowplug::codegen::testing
