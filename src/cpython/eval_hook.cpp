#include "cpython/pycore.h"

#include "cpython/eval_hook.h"

#include <utility>

#include "cpython/frame_watch.h"

namespace glowplug::cpython {
namespace {

// Under the GIL.
FrameEvaluator handler = evaluateByPrevious;
FrameEvaluator previous = _PyEval_EvalFrameDefault;
size_t users = 0;

PyObject* evaluate(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  FrameWatch::note(frame);
  return handler(thread, frame, throwing);
}

}  // namespace

void setFrameHandler(FrameEvaluator to) { handler = to; }

void addHookUser() {
  if (users++) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  FrameEvaluator installed = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (installed == evaluate) return;
  previous = installed;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void removeHookUser() {
  if (--users) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Another hook that was put over ours keeps calling it; it must find the way on.
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate) return;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
}

PyObject* evaluateByPrevious(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  static thread_local _PyInterpreterFrame* handed = nullptr;
  if (handed == frame) return evaluateByDefault(thread, frame, throwing);
  _PyInterpreterFrame* outer = std::exchange(handed, frame);
  PyObject* result = previous(thread, frame, throwing);
  handed = outer;
  return result;
}

PyObject* evaluateByDefault(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  return _PyEval_EvalFrameDefault(thread, frame, throwing);
}

}  // namespace glowplug::cpython
