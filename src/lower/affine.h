#pragma once

#include <utility>

#include "lower/loop_ir.h"

// Arithmetic on affine expressions. Sums keep like terms together and drop those of factor 0, so
// equal expressions made in the same order are equal.
namespace glowplug::lower {

Affine constantIndex(int64_t number);
Affine sizeIndex(SizeId size);
Affine loopIndex(LoopId loop);
Affine valueIndex(ValueId value);

Affine operator+(Affine a, const Affine& b);
Affine operator-(Affine a, const Affine& b);
// At most one of the two may have loop variables or values.
Affine operator*(const Affine& a, const Affine& b);
inline Affine operator+(Affine a, int64_t b) { return std::move(a) + constantIndex(b); }
inline Affine operator-(Affine a, int64_t b) { return std::move(a) - constantIndex(b); }
inline Affine operator*(const Affine& a, int64_t b) { return a * constantIndex(b); }

bool isConstant(const Affine& a);
bool onlySizes(const Affine& a);  // no loop variables, no values
bool uses(const Affine& a, LoopId loop);

// The factor of a loop variable: an affine expression over sizes. Zero if it is not used.
Affine factorOf(const Affine& a, LoopId loop);
// The expression without that variable's terms.
Affine without(const Affine& a, LoopId loop);

// The value of an expression over sizes alone.
int64_t evaluate(const Affine& a, const int64_t* sizes);

}  // namespace glowplug::lower
