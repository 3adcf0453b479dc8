#pragma once

#include <cstdint>

#include "lower/loop_ir.h"

// Kernels over the last dimension of contiguous tensors: [n] rows of [m] elements, one item a row.
// Arithmetic is in f32 (f64 for f64) and rounded when a result is stored, as in eager.
namespace glowplug::lower {

enum class RowReduction : uint8_t { Sum, Mean, Amax, Amin, Var };

// Buffers: x [n, m], y [n]. Sizes: n, m. Var takes a scalar "correction" (f64). Amax and Amin of
// integers too; the others of floats.
Kernel rowReduction(RowReduction reduction, DType dtype);

// softmax and log_softmax. Buffers: x [n, m], y [n, m]. Sizes: n, m.
Kernel rowSoftmax(DType dtype, bool logarithm);

// layer_norm: (x - mean) / sqrt(variance + eps) * weight + bias. Buffers: x, weight, bias [m] (as
// far as there are any), y. Sizes: n, m. Scalar: eps (f64).
Kernel rowLayerNorm(DType dtype, bool weight, bool bias);

}  // namespace glowplug::lower
