#include "bindings/evaluate.h"

#include "trace/evaluator.h"

namespace glowplug::bindings {

namespace {

bool everyThread = false;

PyObject* start(PyObject*, PyObject* args) {
  int allThreads = 0;
  if (!PyArg_ParseTuple(args, "|p:evaluate_only_start", &allThreads)) return nullptr;
  if (allThreads) {
    everyThread = true;
    trace::evaluateAllThreads(&trace::plainOperations());
  } else {
    trace::startEvaluateOnly();
  }
  Py_RETURN_NONE;
}

PyObject* stop(PyObject*, PyObject*) {
  if (everyThread) trace::evaluateAllThreads(nullptr);
  everyThread = false;
  trace::stopEvaluateOnly();
  Py_RETURN_NONE;
}

PyObject* counts(PyObject*, PyObject*) {
  trace::EvaluationCounts counts = trace::takeEvaluationCounts();
  return Py_BuildValue("{sKsKsK}", "frames", static_cast<unsigned long long>(counts.frames),
                       "instructions", static_cast<unsigned long long>(counts.instructions),
                       "delegated", static_cast<unsigned long long>(counts.delegated));
}

PyMethodDef methods[] = {
    {"evaluate_only_start", start, METH_VARARGS,
     "evaluate_only_start(all_threads=False, /)\n\n"
     "Evaluate the frames that begin from now on with Glowplug, without recording."},
    {"evaluate_only_stop", stop, METH_NOARGS, "Undo evaluate_only_start."},
    {"evaluation_counts", counts, METH_NOARGS,
     "Frames and instructions evaluated on this thread, and frames left to CPython, since the last "
     "call."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int addEvaluateFunctions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace glowplug::bindings
