#pragma once

#include <optional>
#include <string_view>

#include "ir/parser.h"
#include "lower/loop_ir.h"

namespace glowplug::lower {

using ir::ParseError;

struct Parsed {
  Kernel kernel;  // complete only without an error
  std::optional<ParseError> error;
};

// Reads what print() (lower/printer.h) writes. Empty lines and lines that begin with ';' are
// skipped. Ids of values and loops are taken as they are: verify() checks them. Two spaces a level.
Parsed parse(std::string_view text);

}  // namespace glowplug::lower
