#pragma once

#include <Python.h>

#include "cpython/ref.h"

namespace glowplug::cpython {

// No Python error is set when it begins; when it ends, the one from before is set again, unless
// another has come meanwhile.
class ErrorPause {
 public:
  ErrorPause() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~ErrorPause() {
    if (PyErr_Occurred()) {
      Ref dropped[] = {Ref::steal(type_), Ref::steal(value_), Ref::steal(traceback_)};
    } else {
      PyErr_Restore(type_, value_, traceback_);
    }
  }
  ErrorPause(const ErrorPause&) = delete;
  ErrorPause& operator=(const ErrorPause&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

}  // namespace glowplug::cpython
