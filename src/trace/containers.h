#pragma once

#include <Python.h>

namespace glowplug::trace {

bool isDeque(PyObject* object);
// Containers whose reads and writes have a model: dict, list, tuple, set, frozenset, deque, and
// their subclasses.
bool isKnownContainer(PyObject* object);

// Items are read as the base does: no __getitem__ of the class's own.
bool hasItemsOf(PyTypeObject* type, PyTypeObject* base);

}  // namespace glowplug::trace
