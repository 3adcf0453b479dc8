#pragma once

#include <string>

#include "lower/loop_ir.h"

namespace glowplug::lower {

// The whole kernel as text that parse() (lower/parser.h) reads back to an equal kernel; an example
// is in lower/loop_ir.h. Total: malformed kernels print too, with ids that refer to nothing as "-".
std::string print(const Kernel& kernel);

// "i0*m + i1*4 - 3", with the kernel's names.
std::string print(const Kernel& kernel, const Affine& affine);

// One statement in one line, without a loop's body: for messages.
std::string print(const Kernel& kernel, const Statement& statement);

}  // namespace glowplug::lower
