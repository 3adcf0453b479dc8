#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace glowplug::cpython {

// Where to go when an instruction raises: the code units [start, end) are covered.
struct ExceptionHandler {
  int32_t start = 0;
  int32_t end = 0;
  int32_t target = 0;     // unit of the handler
  int32_t depth = 0;      // values that stay on the stack
  bool pushUnit = false;  // the raising instruction's unit is pushed below the exception

  bool operator==(const ExceptionHandler&) const = default;
};

// Decodes co_exceptiontable (Objects/exception_handling_notes.txt in CPython's sources).
std::vector<ExceptionHandler> parseExceptionTable(const uint8_t* bytes, size_t size);

}  // namespace glowplug::cpython
