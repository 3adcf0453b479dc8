#include "lower/convert.h"

#include <algorithm>
#include <cstring>

#include "lower/tables.h"

namespace glowplug::lower {

// Through arithmetic on magnitudes; the reference for the code generator's bit tricks.
float floatOfF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  float size;
  if (exponent == 31) {
    size = fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    size = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

uint16_t f16OfFloat(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size < 0x1p-26F) return sign;
  if (size >= 65520.0F) return sign | 0x7c00;  // half-way to what would be the next number
  int exponent = 0;
  std::frexp(size, &exponent);  // size = [0.5, 1) * 2^exponent
  // The unit in the last place: 11 bits of fraction, but not below 2^-24.
  const int unit = std::max(exponent - 11, -24);
  const auto units = static_cast<uint16_t>(std::nearbyint(std::ldexp(size, -unit)));
  if (unit == -24) return sign | units;  // denormal, or the first normal binade, or just rounded up
  return static_cast<uint16_t>(sign | (((unit + 24) << 10) + units));
}

Number fit(DType dtype, Number value) {
  switch (dtype) {
    case DType::F64:
    case DType::I64:
      return value;
    case DType::F32:
      return {.real = static_cast<float>(value.real)};
    case DType::BF16:
      return {.real = floatOfBf16(bf16OfFloat(static_cast<float>(value.real)))};
    case DType::F16:
      return {.real = floatOfF16(f16OfFloat(static_cast<float>(value.real)))};
    case DType::U8:
      return {.integer = static_cast<uint8_t>(value.integer)};
    case DType::I8:
      return {.integer = static_cast<int8_t>(value.integer)};
    case DType::I16:
      return {.integer = static_cast<int16_t>(value.integer)};
    case DType::I32:
      return {.integer = static_cast<int32_t>(value.integer)};
    case DType::Bool:
      return {.integer = value.integer != 0};
  }
  return value;
}

Number convert(DType from, DType to, Number value) {
  if (to == DType::Bool) {
    return {.integer = isReal(from) ? value.real != 0 : value.integer != 0};
  }
  if (isReal(from) && isReal(to)) return fit(to, value);
  if (!isReal(from) && !isReal(to)) return fit(to, value);
  if (isReal(to)) {
    if (to == DType::F64) return {.real = static_cast<double>(value.integer)};
    return fit(to, {.real = static_cast<float>(value.integer)});
  }
  const bool wide = to == DType::U8 || to == DType::I64;
  const double bound = wide ? 0x1p63 : 0x1p31;
  // An i32 takes doubles down to just above -2^31 - 1.
  const bool inside = wide ? value.real >= -bound && value.real < bound
                           : value.real > -bound - 1 && value.real < bound;
  const int64_t lowest =
      wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  return fit(to, {.integer = inside ? static_cast<int64_t>(value.real) : lowest});
}

namespace {

template <class T>
T readAs(const void* from) {
  T out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

template <class T>
void writeAs(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

Number readNumber(DType dtype, const void* from) {
  switch (dtype) {
    case DType::F32:
      return {.real = readAs<float>(from)};
    case DType::F64:
      return {.real = readAs<double>(from)};
    case DType::BF16:
      return {.real = floatOfBf16(readAs<uint16_t>(from))};
    case DType::F16:
      return {.real = floatOfF16(readAs<uint16_t>(from))};
    case DType::U8:
      return {.integer = readAs<uint8_t>(from)};
    case DType::I8:
      return {.integer = readAs<int8_t>(from)};
    case DType::I16:
      return {.integer = readAs<int16_t>(from)};
    case DType::I32:
      return {.integer = readAs<int32_t>(from)};
    case DType::I64:
      return {.integer = readAs<int64_t>(from)};
    case DType::Bool:
      return {.integer = readAs<uint8_t>(from) != 0};
  }
  return {};
}

void writeNumber(DType dtype, void* to, Number value) {
  switch (dtype) {
    case DType::F32:
      return writeAs(to, static_cast<float>(value.real));
    case DType::F64:
      return writeAs(to, value.real);
    case DType::BF16:
      return writeAs(to, bf16OfFloat(static_cast<float>(value.real)));
    case DType::F16:
      return writeAs(to, f16OfFloat(static_cast<float>(value.real)));
    case DType::U8:
    case DType::I8:
    case DType::Bool:
      return writeAs(to, static_cast<uint8_t>(value.integer));
    case DType::I16:
      return writeAs(to, static_cast<uint16_t>(value.integer));
    case DType::I32:
      return writeAs(to, static_cast<uint32_t>(value.integer));
    case DType::I64:
      return writeAs(to, value.integer);
  }
}

}  // namespace glowplug::lower
