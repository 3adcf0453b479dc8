#pragma once

#include <Python.h>

#include "cpython/ref.h"

// What functools.lru_cache and functools.cache make.
namespace glowplug::cpython {

bool isLruCache(PyObject* object);

// How often the cache has run its function so far.
Py_ssize_t cacheMisses(PyObject* cache);

// A builtin function of a cache and its arguments. It calls the cache and returns what was there;
// where nothing was there, so that the program's function ran, it raises an error that carries the
// result. Borrowed; nullptr with a Python error set if it cannot be made.
PyObject* cachedCall();

// The result that the error which is set now carries, if it is that error; it is taken away then.
Ref takeMissedResult();

}  // namespace glowplug::cpython
