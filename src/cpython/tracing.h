#pragma once

#include <Python.h>

namespace glowplug::cpython {

// sys.settrace or sys.setprofile is in force on this thread.
bool tracingActive();

}  // namespace glowplug::cpython
