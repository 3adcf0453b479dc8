#pragma once

#include <Python.h>

namespace glowplug::cpython {

// Looks `name` up on the object's type and binds it; new reference, nullptr without an error if
// missing.
PyObject* lookUpSpecial(PyObject* object, PyObject* name);
// PREP_RERAISE_STAR: what an `except*` statement raises in the end; new reference.
PyObject* prepareReraiseStar(PyObject* original, PyObject* exceptions);

}  // namespace glowplug::cpython
