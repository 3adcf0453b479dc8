#pragma once

#include <Python.h>

namespace glowplug::bindings {

// A call of an entry with the option "verify": glowplug._verify.check() makes it, beside the
// original. New reference, or nullptr with an error set. Inside of that check entries are called as
// usual.
PyObject* callVerified(PyObject* entry, PyObject* const* args, Py_ssize_t positional,
                       PyObject* kwnames);
bool isVerifying();

// Adds call_unverified(entry, args, kwargs) to the module.
int addVerifyFunctions(PyObject* module);

}  // namespace glowplug::bindings
