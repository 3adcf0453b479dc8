#pragma once

#include <string>
#include <vector>

#include "ir/trace.h"

namespace glowplug::ir {

// What is wrong with a trace, one message each ("event 3 (op): operand %7 is not made before");
// empty for a trace that consumers may rely on:
// - parallel tables exist for every id, and all ids are in range or, where allowed, absent;
// - parents come before children, roots have none, and steps, predicates and recipes carry the
// payload
//   that their tables name and nothing else;
// - recipes have the children that recipes.def says;
// - each value is made by one event, before everything that uses it, also through recipes and
// sources;
// - exactly one Return, and it is last.
std::vector<std::string> verify(const Trace& trace);

}  // namespace glowplug::ir
