#pragma once

#include <string>

#include "ir/trace.h"

namespace glowplug::ir {

// The whole trace as text that parse() (ir/parser.h) reads back to an equal trace:
//
//   trace Small.forward
//   sources
//     $0 = callee
//     $1 = arg 0
//     $2 = dict $0
//     $3 = item $2 'weight'
//   guards
//     type_is $0 Small @model.py:12 forward
//     tensor $1 `f32[2,4] cpu` @model.py:12 forward
//   recipes
//     !0 = value %2
//   events
//     %0: `f32[2,4] cpu` from $1 = input @model.py:12 forward
//     %1: `f32[4,4] cpu` from $3 = input
//     %2: `f32[2,4] cpu` = op aten::linear(%0, %1, None) @model.py:12 forward
//     return !0
//   objects
//     #0 'weight'
//     #1 Small
//   constants, metas, operators, sites ... the same way with ^0, &0, ~0, @0
//
// Texts kept in a table stand where they are used, unless they are long or not unique there: then
// the number does. Absent ids print as "-". What a kind does not use prints only if it is set
// ("index=3"). Total: malformed traces print too.
std::string print(const Trace& trace);

// One compact line per event, with recipes written out: for logs and reports, not parsed.
std::string listing(const Trace& trace);

}  // namespace glowplug::ir
