#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lower/builder.h"

// From ATen's pointwise operators to loop IR: one operator inside a kernel under construction.
namespace glowplug::lower {

// An operand of an operator.
struct PointwiseOperand {
  enum Kind : uint8_t { Tensor, Integer, Real, None };
  Kind kind = None;
  Value element;        // Tensor: in the tensor's dtype
  bool hasDims = true;  // Tensor: false for one without dimensions, which promotes less
  int64_t integer = 0;  // a number of the call; booleans too
  double real = 0;
};

struct PointwiseCall {
  std::string_view op;                     // "aten::add.Tensor"
  std::vector<PointwiseOperand> operands;  // in the schema's order; absent optional ones are None
  std::string_view mode;                   // rounding_mode of div, approximate of gelu; else empty
  DType result = DType::F32;
};

// Emits the operator and gives the element of its result, rounded to `result` as eager rounds it.
// Invalid, with the reason in `refusal`, if there is no rule for it or for these dtypes; the
// builder is of no use then. Numbers count as of torch's default dtype f32 where they decide a
// promotion.
Value lowerPointwise(Builder& builder, const PointwiseCall& call, std::string& refusal);

// torch's promotion of two dtypes of one category of operands.
DType promote(DType a, DType b);

}  // namespace glowplug::lower
