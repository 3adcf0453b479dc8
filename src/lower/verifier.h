#pragma once

#include <string>
#include <vector>

#include "lower/loop_ir.h"

namespace glowplug::lower {

// What is wrong with a kernel, one message each ("store y [i0] %3: value %3 is f64, not f32");
// empty for a kernel that the interpreter and the code generator may rely on:
// - names are words, unlike each other, and no size is named like a loop variable;
// - each value is made once, before its uses, in the same block or one around them; results of
//   reductions are known only after their loop;
// - operands have the dtypes that the tables name;
// - index expressions use loop variables in scope and i64 values; extents only sizes;
// - vector loops do not contain vector loops, limits are the same for all lanes, and stores in them
//   go to a place of their own in each lane;
// - a reduction goes over a loop around it in the same item, a scan over a serial one without a
//   vector loop in between;
// - inputs are not written, outputs not read.
std::vector<std::string> verify(const Kernel& kernel);

}  // namespace glowplug::lower
