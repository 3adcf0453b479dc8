#include "python_support.h"

namespace glowplug::testing {

const char* helpers() { return "import torch\n"; }

}  // namespace glowplug::testing
