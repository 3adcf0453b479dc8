#pragma once

#include <Python.h>

// The state of torch's default random generator, read and set by operators, so that recordings see
// it in order with the operators that draw.
namespace glowplug::aten {

bool isDefaultGenerator(PyObject* object);
// generator.get_state(), set_state(state) and manual_seed(seed). New reference, or nullptr with an
// error set. Not for arguments that torch would not take: canSetState.
PyObject* readRngState();
bool canSetState(PyObject* state);
PyObject* setRngState(PyObject* generator, PyObject* state);
PyObject* seedRng(PyObject* generator, PyObject* seed);

}  // namespace glowplug::aten
