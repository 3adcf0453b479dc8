#pragma once

#include <Python.h>

struct _PyInterpreterFrame;

namespace glowplug::cpython {

// A borrowed look at an interpreter frame that is being evaluated, without the version's struct.
class FrameView {
 public:
  explicit FrameView(struct _PyInterpreterFrame* frame) : frame_(frame) {}

  struct _PyInterpreterFrame* raw() const { return frame_; }
  PyCodeObject* code() const;
  PyObject* function() const;  // the function object that runs, borrowed
  PyObject* globals() const;
  PyObject* builtins() const;
  PyObject* locals() const;       // mapping of class and module bodies, else nullptr
  PyObject** fastLocals() const;  // localsplus: arguments, locals, cells, free variables
  int line() const;               // of the instruction that is executed
  int instruction() const;        // its index in the code, cheap
  // Says that another instruction is executed (RERAISE: where the exception was raised first).
  void setInstruction(int index);
  bool isGenerator() const;  // owned by a generator, coroutine or async generator

 private:
  struct _PyInterpreterFrame* frame_;
};

}  // namespace glowplug::cpython
