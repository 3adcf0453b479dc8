#include "cpython/pycore.h"

#include "cpython/eval_hook.h"

namespace glowplug::cpython {

FrameEvaluator installedEvaluator() {
  return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
}

void installEvaluator(FrameEvaluator evaluator) {
  _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluator);
}

FrameEvaluator defaultEvaluator() { return _PyEval_EvalFrameDefault; }

PyObject* evaluateByDefault(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  return _PyEval_EvalFrameDefault(thread, frame, throwing);
}

}  // namespace glowplug::cpython
