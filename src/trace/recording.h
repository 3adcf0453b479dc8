#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aten/op_table.h"
#include "common/reasons.h"
#include "cpython/object_table.h"
#include "ir/trace.h"

namespace glowplug::trace {

// What one recording leaves: the trace and the tables its ids point into.
struct Recording {
  ir::Trace trace;
  cpython::ObjectTable objects;
  aten::OpTable ops;
  std::optional<aten::StateSnapshot> state;  // torch's thread state when the call began
};

}  // namespace glowplug::trace
