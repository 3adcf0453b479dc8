#pragma once

#include "cpython/ref.h"

namespace glowplug::cpython {

// A module of that name, imported if it is not yet. Unlike PyImport_ImportModule this does not call
// builtins.__import__, which a program may have replaced by a function of its own. Null with an
// error set when the import fails.
Ref importModule(const char* name);

// What a module has under the name, kept for the life of the process; nullptr, and no error set,
// when there is none.
PyObject* moduleAttribute(const char* module, const char* name);
PyTypeObject* moduleType(const char* module, const char* name);
PyTypeObject* dequeType();  // collections.deque

}  // namespace glowplug::cpython
