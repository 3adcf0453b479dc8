#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "lower/loop_ir.h"

// Conversions between dtypes, one value at a time, as torch does them on the CPU:
// - to bool: is it not 0 (true for NaN);
// - float to integer: towards zero. What C++ leaves undefined is what x86 gives: out of range and
//   NaN make the lowest number of the intermediate type, i64 for u8 and i64, else i32, and the low
//   bits of that are taken;
// - to bf16 and f16: to f32 first, then to nearest, ties to even.
namespace glowplug::lower {

inline float floatOfBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t bf16OfFloat(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float floatOfF16(uint16_t bits);
uint16_t f16OfFloat(float value);

// A value of any dtype: bf16, f16, f32 and f64 as a double, integers and bool as an int64.
union Number {
  double real;
  int64_t integer;
};

// Rounds or wraps a number of `dtype`'s kind to one that `dtype` can hold.
Number fit(DType dtype, Number value);
Number convert(DType from, DType to, Number value);

Number readNumber(DType dtype, const void* from);
void writeNumber(DType dtype, void* to, Number value);

}  // namespace glowplug::lower
