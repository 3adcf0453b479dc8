#pragma once

#include <Python.h>

namespace glowplug::bindings {

// Adds evaluate_only_start(all_threads=False, /), evaluate_only_stop() and evaluation_counts() to
// the module: evaluation without recording, for conformance tests. 0, or -1 with an error.
int addEvaluateFunctions(PyObject* module);

}  // namespace glowplug::bindings
