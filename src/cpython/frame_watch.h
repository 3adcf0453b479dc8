#pragma once

#include <Python.h>

struct _PyInterpreterFrame;

namespace glowplug::cpython {

// Notes whether Python code of the program runs on this thread during a call into C: all but that
// of Python's standard library and of packages that are known to keep to what they are asked for.
class FrameWatch {
 public:
  FrameWatch();
  ~FrameWatch();
  FrameWatch(const FrameWatch&) = delete;

  bool ranProgram() const { return ranProgram_; }

  // For the hook: a frame begins or goes on.
  static void note(struct _PyInterpreterFrame* frame);

 private:
  FrameWatch* outer_;
  bool ranProgram_ = false;
};

// The code is the program's own by the module whose globals it has.
bool isOfProgram(PyObject* globals);

}  // namespace glowplug::cpython
