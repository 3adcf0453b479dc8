#pragma once

#include <cstdint>

#include "lower/loop_ir.h"

namespace glowplug::lower {

// What one nest costs for given sizes, to choose how many items a thread takes at once.
struct Cost {
  int64_t items = 0;        // iterations of the parallel loops
  double bytesPerItem = 0;  // loaded and stored, Locals left out; reused rows are counted twice
  double flopsPerItem = 0;  // in additions (the tables' column)
};

Cost costOf(const Kernel& kernel, const Nest& nest, const int64_t* sizes);

// Scratch memory that a call needs for the Locals, and where in it a Local begins; each begins at
// a multiple of 64.
int64_t localBytes(const Kernel& kernel, const int64_t* sizes);

}  // namespace glowplug::lower
