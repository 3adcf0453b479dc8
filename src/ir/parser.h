#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/trace.h"

namespace glowplug::ir {

struct ParseError {
  int line = 0;    // from 1
  int column = 0;  // from 1
  std::string message;

  std::string text() const;  // "3:7: unknown source step 'foo'"
};

struct Parsed {
  Trace trace;  // complete only without an error
  std::optional<ParseError> error;
};

// Reads what print() (ir/printer.h) writes. Empty lines and lines that begin with ';' are skipped.
// Ids of rows must count up from 0; other ids are taken as they are: verify() checks them.
Parsed parse(std::string_view text);

}  // namespace glowplug::ir
