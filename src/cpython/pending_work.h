#pragma once

#include <Python.h>

namespace glowplug::cpython {

// Not zero when the running thread must look at pending work: signals, pending calls, another
// thread that waits for the GIL, an exception that another thread has sent.
const volatile int* pendingWorkFlag(PyThreadState* thread);

// Does that work. -1 with an error when a signal handler or a sent exception raises.
int doPendingWork(PyThreadState* thread);

}  // namespace glowplug::cpython
