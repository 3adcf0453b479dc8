#pragma once

#include <Python.h>

// What CPython's evaluator does for `await` and keeps to itself.
namespace glowplug::cpython {

// The iterator that `await object` drives; new reference, or nullptr with an error.
PyObject* awaitableIterator(PyObject* object);
// What a suspended generator or coroutine waits for; new reference, or nullptr.
PyObject* awaitedBy(PyObject* coroutine);
// A value yielded by an async generator, marked as such; new reference.
PyObject* wrapAsyncValue(PyObject* value);

}  // namespace glowplug::cpython
