#pragma once

#include <vector>

#include "lower/loop_ir.h"

namespace glowplug::lower {

// For each value of a kernel whether it may differ between the lanes of the vector loop around its
// statement. Values outside vector loops do not, nor does what a vector loop reduces to.
std::vector<bool> laneVarying(const Kernel& kernel);

// Whether an expression differs between the lanes of the vector loop with that variable (which may
// be absent: then it does not).
bool laneVarying(const Affine& a, LoopId vector, const std::vector<bool>& values);

// One more than the largest number of a value, and of a loop.
size_t valueCount(const Kernel& kernel);
size_t loopCount(const Kernel& kernel);

}  // namespace glowplug::lower
