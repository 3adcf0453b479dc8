#pragma once

#include <string>

#include "codegen/target.h"

namespace glowplug::codegen {

// All that decides, besides a kernel's text, what machine code is made of it here: versions of
// Glowplug and LLVM, the sources of lowering and code generation (a hash that the build makes, so
// that no build takes objects of another one), the target and the features of this processor.
// A few lines.
std::string identityOf(const Target& target);

}  // namespace glowplug::codegen
