#pragma once

#include <Python.h>

#include <unordered_map>

#include "cpython/ref.h"

// What objects hold, read and written past the methods of their classes.
namespace glowplug::cpython {

// A dict, list, set or deque, or an instance of a subclass of one.
bool isContainer(PyObject* object);
// A copy of what the container holds: an OrderedDict, dict, set or list.
Ref contentsOf(PyObject* container);
// False with a Python error set.
bool putContents(PyObject* container, PyObject* contents);

// By an object, the one that stands in its place.
using Twins = std::unordered_map<PyObject*, PyObject*>;
// Gives `object` all that another one of its class holds: items, attributes, slots, the content of
// a cell. False with a Python error set.
bool takeOver(PyObject* object, PyObject* from, const Twins& twins);

}  // namespace glowplug::cpython
