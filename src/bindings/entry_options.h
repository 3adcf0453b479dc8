#pragma once

#include <Python.h>

#include <string_view>

#include "common/options.h"

namespace glowplug::bindings {

// What compile(options={...}) says, over the environment's defaults: the options of options.def by
// name, and "disable_passes", a list of names from passes.def. 0, or -1 with a ValueError that
// names what is unknown or which two things contradict each other. `backend`: the entry's, by name;
// empty for a function. Only what is said counts as a contradiction, not what is in the
// environment.
int readOptions(PyObject* dict, std::string_view backend, common::Options* options);

}  // namespace glowplug::bindings
