#pragma once

#include <Python.h>

namespace glowplug::aten {

// A backward pass, as torch's engine takes it from Python: tuples of tensors (gradients may be
// None).
struct BackwardCall {
  PyObject* roots = nullptr;
  PyObject* gradients = nullptr;
  PyObject* inputs = nullptr;  // asked for; empty: all leaves
  PyObject* leaves = nullptr;  // list of those that the pass reaches
  bool keepGraph = false, createGraph = false;
  bool allowUnreachable = true;
  bool accumulate = false;  // into .grad of the leaves, or of the inputs
};

// What the pass would do outside of operators.
struct BackwardReach {
  bool runsPython = false;     // an autograd.Function or a hook
  PyObject* leaves = nullptr;  // list of the leaf tensors that it reaches; new reference
};
BackwardReach backwardReach(PyObject* roots);

}  // namespace glowplug::aten
