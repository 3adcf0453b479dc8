#pragma once

#include <optional>
#include <string>
#include <vector>

#include "opt/graph.h"

namespace glowplug::opt {

// What oneDNN may apply to a result while a block of it is in cache, by oneDNN's names.
struct Activation {
  std::string name;  // "relu", "swish", "gelu", "hardtanh"
  std::string algorithm;
  std::vector<double> scalars;
};

// Of its first operand, out of place or in place.
std::optional<Activation> activationOf(const Node& node);

}  // namespace glowplug::opt
