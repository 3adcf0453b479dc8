#pragma once

// CPython's internal headers, as C++ takes them. Only .cpp files of this folder include this,
// before any other header that includes Python.h.
#define Py_BUILD_CORE 1
#include <Python.h>
// With it pycore_atomic.h would use C's _Atomic; without, compiler builtins on the same layout.
#undef HAVE_STD_ATOMIC

#include <internal/pycore_ceval.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_object.h>
#include <internal/pycore_pystate.h>
#include <internal/pycore_runtime.h>
