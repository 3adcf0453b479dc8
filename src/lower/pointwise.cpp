#include "lower/pointwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "lower/tables.h"

namespace glowplug::lower {
namespace {

enum class Domain : uint8_t { Result, Common, Bool, Own };

// Emits one operator. An operation that does not take the dtype makes it fail, not the builder.
class Rules {
 public:
  Rules(Builder& builder, const PointwiseCall& call, DType promoted)
      : b(builder),
        call(call),
        promoted(promoted),
        compute(isHalf(promoted) ? DType::F32 : promoted) {}

  size_t count() const { return call.operands.size(); }
  bool given(size_t i) const {
    return i < count() && call.operands[i].kind != PointwiseOperand::None;
  }
  bool isNumber(size_t i) const {
    return given(i) && call.operands[i].kind != PointwiseOperand::Tensor;
  }
  double number(size_t i) const {
    const PointwiseOperand& operand = call.operands[i];
    return operand.kind == PointwiseOperand::Integer ? static_cast<double>(operand.integer)
                                                     : operand.real;
  }
  Value as(DType dtype, size_t i) { return b.cast(dtype, raw(dtype, i)); }
  // Rounded to the dtype that the operands are promoted to, then as the rule computes.
  Value in(size_t i) { return b.cast(compute, as(promoted, i)); }
  // As `in`, but eager keeps some operators' numbers and tensors without dimensions in f32.
  Value exact(size_t i) {
    if (!given(i)) return in(i);
    const PointwiseOperand& operand = call.operands[i];
    const bool tensor = operand.kind == PointwiseOperand::Tensor && operand.hasDims;
    return tensor ? in(i) : as(compute, i);
  }
  Value constant(double value) {
    return isReal(compute) ? b.real(compute, value)
                           : b.integer(compute, static_cast<int64_t>(value));
  }
  template <class... Values>
  Value op(Op kind, Value first, Values... others) {
    Value last = first;
    ((last = others), ...);
    if (!takes(info(kind).dtypes, last.dtype)) {
      failed = true;
      return last;
    }
    return b.op(kind, first, others...);
  }

  // For conditions that may have failed to be booleans.
  Value choose(Value condition, Value a, Value other) {
    return failed ? a : b.select(condition, a, other);
  }

  Builder& b;
  const PointwiseCall& call;
  DType promoted;
  DType compute;  // f32 for the 16-bit dtypes
  bool failed = false;

 private:
  Value raw(DType dtype, size_t i) {
    if (!given(i)) {
      failed = true;
      return isReal(dtype) ? b.real(dtype, 0) : b.integer(dtype, 0);
    }
    const PointwiseOperand& operand = call.operands[i];
    switch (operand.kind) {
      case PointwiseOperand::Tensor:
        return operand.element;
      case PointwiseOperand::Integer:
        return isReal(dtype) ? b.real(dtype, static_cast<double>(operand.integer))
                             : b.integer(dtype, operand.integer);
      case PointwiseOperand::Real:
        if (isReal(dtype)) return b.real(dtype, operand.real);
        return b.real(DType::F64, operand.real);
      case PointwiseOperand::None:
        break;
    }
    return {};
  }
};

template <Op kOp>
Value operation(Rules& r) {
  const bool rounds = kOp == Op::Floor || kOp == Op::Ceil || kOp == Op::Round || kOp == Op::Trunc;
  if (rounds && isInt(r.compute)) return r.in(0);
  constexpr bool kMayBeWhole = kOp == Op::IsNan || kOp == Op::IsInf;
  if (kMayBeWhole && !isReal(r.compute)) return r.b.integer(DType::Bool, 0);
  const Value a = r.in(0);
  return info(kOp).operands == 1 ? r.op(kOp, a) : r.op(kOp, a, r.in(1));
}
#define OPERATION(op) operation<Op::op>

// The second operand times alpha, which is a product of its own in eager's scalar code and part of
// a fused one in its vector code; without an alpha it is neither.
Value scaled(Rules& r) {
  const bool plain = !r.given(2) || r.number(2) == 1;
  return plain ? r.in(1) : r.op(Op::Mul, r.in(1), r.in(2));
}

Value addScaled(Rules& r) {
  if (r.compute == DType::Bool) {
    r.failed |= r.given(2) && r.number(2) != 1;
    return r.op(Op::Or, r.in(0), r.in(1));
  }
  const Value a = r.in(0);
  return r.op(Op::Add, a, scaled(r));
}

Value subtractScaled(Rules& r) {
  const Value a = r.in(0);
  return r.op(Op::Sub, a, scaled(r));
}

Value subtractFrom(Rules& r) {
  const bool plain = !r.given(2) || r.number(2) == 1;
  const Value a = plain ? r.in(0) : r.op(Op::Mul, r.in(0), r.in(2));
  return r.op(Op::Sub, r.in(1), a);
}

Value multiply(Rules& r) {
  const Value a = r.exact(0), b = r.exact(1);
  return r.op(r.compute == DType::Bool ? Op::And : Op::Mul, a, b);
}

Value divide(Rules& r) {
  const bool plain = r.call.mode.empty();
  const Value a = plain ? r.exact(0) : r.in(0), b = plain ? r.exact(1) : r.in(1);
  if (r.call.mode == "floor") return r.op(Op::DivFloor, a, b);
  if (r.call.mode == "trunc") return r.op(Op::DivTrunc, a, b);
  return r.op(Op::Div, a, b);
}

// Eager's shorter ways for some exponents are parts of its results; of bf16 it rounds the square.
Value power(Rules& r) {
  const Value a = r.in(0);
  if (!r.isNumber(1)) return r.op(Op::Pow, a, r.in(1));
  const double exponent = r.number(1);
  Value square = r.op(Op::Mul, a, a);
  if (exponent == 2) return square;
  if (r.promoted == DType::BF16) square = r.b.rounded(DType::BF16, square);
  if (exponent == 3) return r.op(Op::Mul, square, a);
  if (isFloat(r.compute)) {
    if (exponent == 0.5) return r.op(Op::Sqrt, a);
    if (exponent == -0.5) return r.op(Op::Rsqrt, a);
    if (exponent == -1) return r.op(Op::Reciprocal, a);
    if (exponent == -2) return r.op(Op::Reciprocal, square);
  }
  return r.op(Op::Pow, a, r.in(1));
}

// Of integers they are maximum and minimum.
Value fmax(Rules& r) { return r.op(isFloat(r.compute) ? Op::Fmax : Op::Maximum, r.in(0), r.in(1)); }

Value fmin(Rules& r) { return r.op(isFloat(r.compute) ? Op::Fmin : Op::Minimum, r.in(0), r.in(1)); }

Value clamp(Rules& r) {
  Value out = r.in(0);
  if (r.given(1)) {
    const Value low = r.in(1);
    out = r.choose(r.op(Op::Lt, out, low), low, out);
  }
  if (r.given(2)) {
    const Value high = r.in(2);
    out = r.choose(r.op(Op::Gt, out, high), high, out);
  }
  return out;
}

Value relu(Rules& r) {
  const Value a = r.in(0), zero = r.constant(0);
  return r.choose(r.op(Op::Lt, a, zero), zero, a);
}

Value silu(Rules& r) {
  const Value a = r.in(0);
  const Value power = r.op(Op::Exp, r.op(Op::Neg, a));
  return r.op(Op::Div, a, r.op(Op::Add, r.constant(1), power));
}

// The error function with an absolute error of 5e-7, as ATen's vectorised gelu has it: Abramowitz
// and Stegun, Handbook of Mathematical Functions, 7.1.26. A quarter of the time of the exact one.
Value roughErf(Rules& r, Value a) {
  const Value size = r.op(Op::Abs, a);
  const auto fma = [&](Value x, Value y, double z) { return r.b.op(Op::Fma, x, y, r.constant(z)); };
  const Value t = r.op(Op::Reciprocal, fma(size, r.constant(0.3275911), 1));
  Value sum = r.constant(1.061405429);
  for (const double factor : {-1.453152027, 1.421413741, -0.284496736, 0.254829592}) {
    sum = fma(sum, t, factor);
  }
  const Value power = r.op(Op::Exp, r.op(Op::Neg, r.op(Op::Mul, size, size)));
  const Value rest = r.op(Op::Mul, r.op(Op::Mul, t, sum), power);
  return r.op(Op::Copysign, r.op(Op::Sub, r.constant(1), rest), a);
}

Value gelu(Rules& r) {
  const Value a = r.in(0);
  const Value half = r.op(Op::Mul, a, r.constant(0.5));
  Value inner;
  if (r.call.mode == "tanh") {
    const Value cube = r.op(Op::Mul, r.op(Op::Mul, a, a), a);
    const Value sum = r.op(Op::Add, a, r.op(Op::Mul, r.constant(0.044715), cube));
    const double factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    inner = r.op(Op::Tanh, r.op(Op::Mul, r.constant(factor), sum));
  } else {
    const Value scaled = r.op(Op::Mul, a, r.constant(1 / std::numbers::sqrt2));
    inner = a.dtype == DType::F64 ? r.op(Op::Erf, scaled) : roughErf(r, scaled);
  }
  return r.op(Op::Mul, half, r.op(Op::Add, r.constant(1), inner));
}

Value leakyRelu(Rules& r) {
  const Value a = r.in(0);
  const Value slope = r.given(1) ? r.exact(1) : r.constant(0.01);
  return r.choose(r.op(Op::Gt, a, r.constant(0)), a, r.op(Op::Mul, a, slope));
}

Value where(Rules& r) {
  const DType dtype = r.call.result;
  const Value condition = r.as(DType::Bool, 0);
  const Value a = r.as(dtype, 1), b = r.as(dtype, 2);
  return r.b.select(condition, a, b);
}

Value convertTo(Rules& r) { return r.as(r.call.result, 0); }

struct Row {
  std::string_view name;
  Domain domain;
  Value (*rule)(Rules&);
};

constexpr Row kRows[] = {
#define POINTWISE(name, domain, rule) {name, Domain::domain, rule},
#include "lower/pointwise.def"
#undef POINTWISE
};

int categoryOf(DType dtype) { return dtype == DType::Bool ? 0 : isInt(dtype) ? 1 : 2; }

// torch.result_type: tensors with dimensions decide, unless the others are of a higher category.
DType commonOf(const PointwiseCall& call) {
  bool known[3] = {};
  DType best[3] = {DType::Bool, DType::Bool, DType::Bool};
  for (const PointwiseOperand& operand : call.operands) {
    if (operand.kind == PointwiseOperand::None) continue;
    const bool tensor = operand.kind == PointwiseOperand::Tensor;
    const size_t priority = !tensor ? 2 : operand.hasDims ? 0 : 1;
    const DType dtype = tensor                                      ? operand.element.dtype
                        : operand.kind == PointwiseOperand::Integer ? DType::I64
                                                                    : DType::F32;
    best[priority] = known[priority] ? promote(best[priority], dtype) : dtype;
    known[priority] = true;
  }
  DType out = DType::Bool;
  bool any = false;
  for (size_t i = 0; i < 3; ++i) {
    if (!known[i]) continue;
    if (!any || categoryOf(best[i]) > categoryOf(out)) out = any ? promote(out, best[i]) : best[i];
    any = true;
  }
  return out;
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (categoryOf(a) != categoryOf(b)) return categoryOf(a) > categoryOf(b) ? a : b;
  if (isInt(a)) {
    // u8 with a signed one needs a wider signed one.
    if (a == DType::U8 || b == DType::U8) {
      const DType other = a == DType::U8 ? b : a;
      return other == DType::I8 ? DType::I16 : other;
    }
    return bytesOf(a) > bytesOf(b) ? a : b;
  }
  if (isHalf(a) && isHalf(b)) return DType::F32;
  return bytesOf(a) > bytesOf(b) ? a : b;
}

Value lowerPointwise(Builder& builder, const PointwiseCall& call, std::string& refusal) {
  const std::string_view name = call.op.substr(0, call.op.find('.'));
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& candidate) { return candidate.name == name; });
  if (row == std::end(kRows) || call.operands.empty()) {
    refusal = fmt::format("no rule for {}", call.op);
    return {};
  }
  const DType promoted = row->domain == Domain::Result   ? call.result
                         : row->domain == Domain::Common ? commonOf(call)
                                                         : DType::Bool;
  Rules rules(builder, call, promoted);
  const Value out = row->rule(rules);
  if (rules.failed || !out.valid()) {
    refusal = fmt::format("no rule for {} in {}", call.op, nameOf(call.result));
    return {};
  }
  return builder.cast(call.result, out);
}

}  // namespace glowplug::lower
