#pragma once

#include <Python.h>

// Default hooks for tensors that autograd saves (torch.autograd.graph.saved_tensors_hooks).
namespace glowplug::aten {

// The functions of torch that set a pair of them and take the last pair away; borrowed.
PyObject* savedHooksPush();
PyObject* savedHooksPop();
// How many pairs are set on this thread.
size_t savedHooksDepth();
// The pack function keeps to itself: it changes nothing but what it has made. So do those of
// checkpointing and of save_on_cpu; of others nothing is known.
bool keepsToItself(PyObject* pack);

}  // namespace glowplug::aten
