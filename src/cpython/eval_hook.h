#pragma once

#include <Python.h>

struct _PyInterpreterFrame;

// PEP 523: the function that evaluates frames. There is one of ours, put in as long as anybody
// needs it: a second one over it would be handed its own frames again.
namespace glowplug::cpython {

using FrameEvaluator = PyObject* (*)(PyThreadState*, struct _PyInterpreterFrame*, int);

// Our hook hands frames to the handler; without one it only lets them be watched (frame_watch.h).
void setFrameHandler(FrameEvaluator handler);
// Uses are counted. Under the GIL.
void addHookUser();
void removeHookUser();

// By whoever evaluated frames before our hook was put in. If that one was put over ours later and
// hands the frame back, the default evaluator takes it.
PyObject* evaluateByPrevious(PyThreadState* thread, struct _PyInterpreterFrame* frame,
                             int throwing);
// By CPython's own evaluator.
PyObject* evaluateByDefault(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throwing);

}  // namespace glowplug::cpython
