#include "cpython/pycore.h"

#include "cpython/running_frame.h"

#include <opcode.h>

namespace glowplug::cpython {

bool RunningFrame::enter() {
  _PyInterpreterFrame* frame = frame_.raw();
  _PyCFrame* outer = thread_->cframe;
  cframe_.use_tracing = outer->use_tracing;
  cframe_.previous = outer;
  cframe_.current_frame = frame;
  thread_->cframe = &cframe_;
  frame->is_entry = true;
  frame->previous = outer->current_frame;
  if (_Py_EnterRecursiveCallTstate(thread_, "")) {
    thread_->cframe = outer;
    return false;
  }
  // The garbage collector must not look at a stack that changes.
  frame->stacktop = -1;
  return true;
}

void RunningFrame::leave(PyObject** stackPointer) {
  _PyFrame_SetStackPointer(frame_.raw(), stackPointer);
  _Py_LeaveRecursiveCallTstate(thread_);
  thread_->cframe = cframe_.previous;
  thread_->cframe->use_tracing = cframe_.use_tracing;
}

PyObject** RunningFrame::stackBase() const { return _PyFrame_Stackbase(frame_.raw()); }
PyObject** RunningFrame::stackPointer() const { return _PyFrame_GetStackPointer(frame_.raw()); }
_Py_CODEUNIT** RunningFrame::instruction() const { return &frame_.raw()->prev_instr; }

void RunningFrame::suspendGenerator() {
  _PyFrame_GetGenerator(frame_.raw())->gi_frame_state = FRAME_SUSPENDED;
}

bool RunningFrame::firstResumption() const {
  return frame_.isGenerator() && _Py_OPCODE(*frame_.raw()->prev_instr) == RETURN_GENERATOR;
}

bool RunningFrame::incomplete() const { return _PyFrame_IsIncomplete(frame_.raw()); }

bool makesGenerator(FrameView frame) {
  constexpr int kGenerators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return (frame.code()->co_flags & kGenerators) && !frame.isGenerator();
}

}  // namespace glowplug::cpython
