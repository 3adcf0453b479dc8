#pragma once

#include <Python.h>

// Errors as CPython's evaluator words them.
namespace glowplug::trace {

void raiseNameError(PyObject* name);
// Local and cell variables that have no value.
void raiseUnboundLocal(PyCodeObject* code, int local);
void raiseUnboundCell(PyCodeObject* code, int local);
// Says which callee's **mapping made _PyDict_MergeEx fail.
void explainKeywordsError(PyObject* callee, PyObject* mapping);

}  // namespace glowplug::trace
