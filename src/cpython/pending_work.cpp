#include "cpython/pycore.h"

#include "cpython/pending_work.h"

namespace glowplug::cpython {

namespace {

int load(const _Py_atomic_int* value) { return _Py_atomic_load_relaxed(value); }

// The flag is the union of the reasons (ceval.c, COMPUTE_EVAL_BREAKER).
void recomputeFlag(PyInterpreterState* interpreter) {
  const _ceval_runtime_state& runtime = interpreter->runtime->ceval;
  _ceval_state& state = interpreter->ceval;
  const bool main = _Py_ThreadCanHandleSignals(interpreter);
  const int flag = load(&state.gil_drop_request) | (load(&runtime.signals_pending) && main) |
                   (load(&state.pending.calls_to_do) && main) | state.pending.async_exc;
  _Py_atomic_store_relaxed(&state.eval_breaker, flag);
}

int raiseSentException(PyThreadState* thread) {
  PyObject* exception = thread->async_exc;
  if (!exception) return 0;
  thread->async_exc = nullptr;
  thread->interp->ceval.pending.async_exc = 0;
  recomputeFlag(thread->interp);
  PyErr_SetNone(exception);
  Py_DECREF(exception);
  return -1;
}

}  // namespace

const volatile int* pendingWorkFlag(PyThreadState* thread) {
  static_assert(sizeof(thread->interp->ceval.eval_breaker) == sizeof(int));
  return reinterpret_cast<const volatile int*>(&thread->interp->ceval.eval_breaker);
}

int doPendingWork(PyThreadState* thread) {
  _ceval_state& state = thread->interp->ceval;
  if (load(&thread->interp->runtime->ceval.signals_pending) || load(&state.pending.calls_to_do)) {
    if (Py_MakePendingCalls() < 0) return -1;
  }
  // Dropping the GIL clears the request and gives the waiting thread its turn.
  if (load(&state.gil_drop_request)) PyEval_RestoreThread(PyEval_SaveThread());
  return raiseSentException(thread);
}

}  // namespace glowplug::cpython
