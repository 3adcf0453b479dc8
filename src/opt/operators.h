#pragma once

#include <cstdint>
#include <string_view>

namespace glowplug::opt {

// What passes know of an operator: operators.def.
enum class OperatorClass : uint8_t { Unknown, Pointwise, Rows, Identity };

// "aten::add" of "aten::add.Tensor".
std::string_view baseName(std::string_view op);
OperatorClass classOf(std::string_view op);

}  // namespace glowplug::opt
