#pragma once

#include "lower/launch.h"

namespace glowplug::lower {

// One operation on numbers of `dtype` (of the last operand), not Cast: what ops.def says, computed
// the obvious way. Transcendental functions are evaluated wider and rounded.
Number evaluate(Op op, DType dtype, const Number* operands, KernelError* error);

// One step of a Sum, Prod, Max, Min, Any or All, and where it starts from.
Number combine(Reduction reduction, DType dtype, Number so_far, Number next);
Number identity(Reduction reduction, DType dtype);

}  // namespace glowplug::lower
