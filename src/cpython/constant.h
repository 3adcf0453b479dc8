#pragma once

#include <Python.h>

namespace glowplug::cpython {

// Immutable values that own nothing of a user's: None, numbers, strings, dtypes, devices, and
// tuples, frozensets, slices and ranges of such; exactly the builtin classes. Comparing two runs no
// Python code.
bool isPlainValue(PyObject* object);

// Same exact type and same value: floats by their bits, containers item by item. What is not a
// plain value equals only itself.
bool constantsEqual(PyObject* a, PyObject* b);

// Another object of the same value and exact class (float, int, str), which nothing else holds: its
// identity tells where the value came from. New reference; nullptr without an error for values that
// exist once (texts of one character) and for other classes.
PyObject* distinctCopy(PyObject* value);

// The set holds exactly the items of the frozenset.
bool setsEqual(PyObject* set, PyObject* frozen);

}  // namespace glowplug::cpython
