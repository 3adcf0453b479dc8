#include "cpython/tracing.h"

namespace glowplug::cpython {

bool tracingActive() { return PyThreadState_Get()->cframe->use_tracing != 0; }

}  // namespace glowplug::cpython
