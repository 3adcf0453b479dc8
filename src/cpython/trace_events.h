#pragma once

#include <Python.h>

// What a function installed by sys.settrace() or sys.setprofile() while a frame was being evaluated
// is told about that frame, until the default evaluator goes on with it. The frame is the running
// one.
namespace glowplug::cpython {

// An exception was raised in the frame; it is set, and stays set unless the trace function raises
// its own.
void reportException(PyThreadState* thread);
// The frame ends by an exception.
void reportUnwinding(PyThreadState* thread);

}  // namespace glowplug::cpython
