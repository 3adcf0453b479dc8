#pragma once

#include <vector>

#include "cpython/undo_log.h"
#include "ir/trace.h"

namespace glowplug::replay {

// Keeps what an effect is about to change. A replay that has to stop after it committed effects
// lets the program run again from its start; the program then does those writes itself, from the
// state it had found. False with a Python error set when an object cannot be copied.
bool note(cpython::UndoLog& log, const ir::Event& effect,
          const std::vector<cpython::Ref>& operands);

}  // namespace glowplug::replay
