#pragma once

#include <vector>

#include "lower/launch.h"
#include "lower/loop_ir.h"

namespace glowplug::lower {

// Runs a verified kernel the slow and obvious way: the oracle that generated code is tested
// against. Sums, products and Welford's moments of f32 are kept in double, so they differ from
// machine code, which rounds to f32 in another order; everything else that is not transcendental is
// equal to the bit.
//
// `lengths` are the elements of each buffer: an access beyond them is a bug in the kernel or in the
// caller's sizes, and throws InternalError.
void interpret(const Kernel& kernel, const KernelArguments& arguments,
               const std::vector<int64_t>& lengths);

}  // namespace glowplug::lower
