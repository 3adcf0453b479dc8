#pragma once

// Python code run by C++ tests.

#include <Python.h>

#include <string>

#include "cpython/ref.h"

namespace glowplug::testing {

using cpython::Ref;

// Python code that makes a test program's namespace; each program has its own.
const char* helpers();

// One namespace for the whole test program.
class Python {
 public:
  static PyObject* globals();
  static void run(const std::string& code);
  static Ref eval(const std::string& expression);
  static bool truth(const std::string& expression);
  static std::string text(const std::string& expression);
  static void set(const char* name, PyObject* value);
  // "Type: message" of the error that is set, which `error` names from then on; clears it.
  static std::string takeError();
};

}  // namespace glowplug::testing
