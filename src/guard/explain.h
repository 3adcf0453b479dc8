#pragma once

#include <optional>

#include "guard/trie.h"

namespace glowplug::guard {

// The first guard of the trace, in the order of its recording, that does not hold for the call.
std::optional<Failure> explainTrace(const TraceState& state, const Call& call, Mask bit);

}  // namespace glowplug::guard
