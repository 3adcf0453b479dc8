// convolution 0: ... relu -> %10   ->   convolution 0: ... relu prepared -> %10
//
// Torch's operators describe their operands, look a primitive up and allocate at each call. A
// convolution that is prepared keeps its primitive with the packed weight, and a call gives it
// addresses. It is a pass of its own so that it can be left out.

#include "opt/passes.h"

namespace glowplug::opt {

void prepareCalls(Graph& graph) {
  for (Convolution& convolution : graph.convolutions) convolution.prepared = true;
}

}  // namespace glowplug::opt
