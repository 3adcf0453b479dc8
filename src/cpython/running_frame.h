#pragma once

#include <Python.h>

#include "cpython/frame_view.h"

namespace glowplug::cpython {

// Makes a frame the running one of its thread, as CPython's own evaluator does, so that tracebacks,
// sys._getframe, super(), recursion limits and the garbage collector see what they always see.
//
//   RunningFrame running(thread, frame);
//   if (!running.enter()) return nullptr;      // recursion limit: the error is set
//   ... evaluate, keeping *running.instruction() up to date ...
//   running.leave(stackPointer);               // the stack of a frame that ended is empty
class RunningFrame {
 public:
  RunningFrame(PyThreadState* thread, FrameView frame) : thread_(thread), frame_(frame) {}

  bool enter();
  void leave(PyObject** stackPointer);

  PyObject** stackBase() const;     // where the value stack begins
  PyObject** stackPointer() const;  // before enter(): the stack as it was left
  // The code unit that runs.
  _Py_CODEUNIT** instruction() const;
  // sys.settrace or sys.setprofile was called since the frame began.
  bool tracing() const { return cframe_.use_tracing != 0; }
  void suspendGenerator();
  // The frame is a generator's that has not begun yet.
  bool firstResumption() const;
  // No traceback entry and no frame object before the frame has its cells and free variables.
  bool incomplete() const;

 private:
  PyThreadState* thread_;
  FrameView frame_;
  _PyCFrame cframe_ = {};
};

// The frame makes a generator, coroutine or async generator; it does not run its body.
bool makesGenerator(FrameView frame);

}  // namespace glowplug::cpython
