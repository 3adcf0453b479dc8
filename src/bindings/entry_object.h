#pragma once

#include <Python.h>

namespace glowplug::bindings {

// The Python type `Entry`: a compiled callable. Adds it to the module; -1 with an error set.
int addEntryType(PyObject* module);

// Forgets the traces of all living entries.
void resetAllEntries();

}  // namespace glowplug::bindings
