#include "cpython/pycore.h"

#include "cpython/trace_events.h"

#include "cpython/error_pause.h"
#include "cpython/ref.h"

namespace glowplug::cpython {

namespace {

int callTracer(PyThreadState* thread, Py_tracefunc function, PyObject* self, int what,
               PyObject* argument) {
  if (thread->tracing) return 0;
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return -1;
  const int outer = thread->tracing_what;
  thread->tracing_what = what;
  PyThreadState_EnterTracing(thread);
  frame->f_lineno = PyFrame_GetLineNumber(frame);
  int result = function(self, frame, what, argument);
  frame->f_lineno = 0;
  PyThreadState_LeaveTracing(thread);
  thread->tracing_what = outer;
  return result;
}

}  // namespace

void reportException(PyThreadState* thread) {
  if (!thread->c_tracefunc) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref argument =
      Ref::steal(PyTuple_Pack(3, type, value ? value : Py_None, traceback ? traceback : Py_None));
  const int result = argument ? callTracer(thread, thread->c_tracefunc, thread->c_traceobj,
                                           PyTrace_EXCEPTION, argument.get())
                              : 0;
  if (result == 0) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

void reportUnwinding(PyThreadState* thread) {
  const std::pair<Py_tracefunc, PyObject*> tracers[] = {
      {thread->c_tracefunc, thread->c_traceobj}, {thread->c_profilefunc, thread->c_profileobj}};
  for (auto [function, self] : tracers) {
    if (!function) continue;
    ErrorPause pause;  // the tracer's own exception takes the place of the one before
    if (callTracer(thread, function, self, PyTrace_RETURN, nullptr) != 0) return;
  }
}

}  // namespace glowplug::cpython
