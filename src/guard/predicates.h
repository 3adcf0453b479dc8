#pragma once

#include <Python.h>

#include <string>

#include "guard/node.h"

namespace glowplug::guard {

// The traces of the predicate's mask for which it holds of `object` (never nullptr). SameAs and
// NotSameAs relate two nodes and are not asked here.
Mask holding(const Predicate& predicate, PyObject* object);

// Whether it is this predicate that fails when holding() is without the bit. Predicates on a class
// fail together; this tells which.
bool isAtFault(const Predicate& predicate, PyObject* object, Mask bit);

// Length of a list, tuple, dict, set or deque; -1 for anything else.
Py_ssize_t lengthOf(PyObject* object);

// In words.
std::string expectedText(const Predicate& predicate, Mask bit);
std::string foundText(const Predicate& predicate, PyObject* object, Mask bit);

}  // namespace glowplug::guard
