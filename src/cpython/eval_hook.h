#pragma once

#include <Python.h>

struct _PyInterpreterFrame;

// PEP 523: the function that evaluates frames.
namespace glowplug::cpython {

using FrameEvaluator = PyObject* (*)(PyThreadState*, struct _PyInterpreterFrame*, int);

// The installed one; never nullptr.
FrameEvaluator installedEvaluator();
void installEvaluator(FrameEvaluator evaluator);
// CPython's own.
FrameEvaluator defaultEvaluator();
PyObject* evaluateByDefault(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throwing);

}  // namespace glowplug::cpython
