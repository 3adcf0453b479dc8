#pragma once

#include <Python.h>

namespace glowplug::trace {

// Instances of classes in C of which nothing is known (arrays of numpy, datetime, files, classes of
// a user's extension). What Python does with them runs code out of our sight, so each operator on
// one is an opaque call.
bool isForeign(PyObject* object);
bool isForeignType(PyTypeObject* type);

// Classes in C whose objects keep to themselves: arrays and numbers of numpy, dates, decimals.
bool keepsToItself(PyTypeObject* type);

// A class made by a `class` statement.
bool isPythonClass(PyTypeObject* type);

}  // namespace glowplug::trace
