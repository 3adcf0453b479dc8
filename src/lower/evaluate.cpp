#include "lower/evaluate.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "common/check.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

// The type in which transcendental functions of T are computed.
template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <class T>
T remainder(T a, T b) {
  const T mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

// As Python's floor division of floats.
template <class T>
T divFloor(T a, T b) {
  if (b == 0) return a / b;
  const T mod = std::fmod(a, b);
  T div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T(0), a / b);
  const T down = std::floor(div);
  return div - down > T(0.5) ? down + 1 : down;
}

template <class T>
T maximum(T a, T b) {
  return std::isnan(a) ? a : a > b ? a : b;
}

template <class T>
T minimum(T a, T b) {
  return std::isnan(a) ? a : a < b ? a : b;
}

template <class T>
T sigmoid(T a) {
  const T power = static_cast<T>(std::exp(static_cast<Wider<T>>(-a)));
  return T(1) / (T(1) + power);
}

// Half to even whatever the rounding mode is set to.
template <class T>
T roundEven(T a) {
  const T down = std::floor(a);
  const T rest = a - down;
  if (std::isnan(a) || std::isinf(a) || rest == 0) return a;
  const bool up = rest > T(0.5) || (rest == T(0.5) && std::fmod(down, T(2)) != 0);
  return std::copysign(up ? down + 1 : down, a);
}

template <class T>
T exactReal(Op op, T a, T b, T c) {
  switch (op) {
    case Op::Add:
      return a + b;
    case Op::Sub:
      return a - b;
    case Op::Mul:
      return a * b;
    case Op::Div:
      return a / b;
    case Op::DivFloor:
      return divFloor(a, b);
    case Op::DivTrunc:
      return std::trunc(a / b);
    case Op::Remainder:
      return remainder(a, b);
    case Op::Fmod:
      return std::fmod(a, b);
    case Op::Fma:
      return std::fma(a, b, c);
    case Op::Neg:
      return -a;
    case Op::Abs:
      return std::fabs(a);
    case Op::Sign:
      return static_cast<T>((a > 0) - (a < 0));
    case Op::Reciprocal:
      return T(1) / a;
    case Op::Sqrt:
      return std::sqrt(a);
    case Op::Rsqrt:
      return T(1) / std::sqrt(a);
    case Op::Copysign:
      return std::copysign(a, b);
    case Op::Maximum:
      return maximum(a, b);
    case Op::Minimum:
      return minimum(a, b);
    case Op::Fmax:
      return std::isnan(b) ? a : a > b ? a : b;
    case Op::Fmin:
      return std::isnan(b) ? a : a < b ? a : b;
    case Op::Floor:
      return std::floor(a);
    case Op::Ceil:
      return std::ceil(a);
    case Op::Round:
      return roundEven(a);
    case Op::Trunc:
      return std::trunc(a);
    case Op::Frac:
      return a - std::trunc(a);
    case Op::Sigmoid:
      return sigmoid(a);
    default:
      GP_CHECK(false, std::string(nameOf(op)) + " of floats");
  }
}

template <class W>
W wideReal(Op op, W a, W b) {
  switch (op) {
    case Op::Pow:
      return std::pow(a, b);
    case Op::Exp:
      return std::exp(a);
    case Op::Exp2:
      return std::exp2(a);
    case Op::Expm1:
      return std::expm1(a);
    case Op::Log:
      return std::log(a);
    case Op::Log2:
      return std::log2(a);
    case Op::Log10:
      return std::log10(a);
    case Op::Log1p:
      return std::log1p(a);
    case Op::Sin:
      return std::sin(a);
    case Op::Cos:
      return std::cos(a);
    case Op::Tan:
      return std::tan(a);
    case Op::Asin:
      return std::asin(a);
    case Op::Acos:
      return std::acos(a);
    case Op::Atan:
      return std::atan(a);
    case Op::Atan2:
      return std::atan2(a, b);
    case Op::Sinh:
      return std::sinh(a);
    case Op::Cosh:
      return std::cosh(a);
    case Op::Tanh:
      return std::tanh(a);
    case Op::Asinh:
      return std::asinh(a);
    case Op::Acosh:
      return std::acosh(a);
    case Op::Atanh:
      return std::atanh(a);
    case Op::Erf:
      return std::erf(a);
    case Op::Erfc:
      return std::erfc(a);
    case Op::Hypot:
      return std::hypot(a, b);
    case Op::Lgamma:
      return std::lgamma(a);
    default:
      GP_CHECK(false, std::string(nameOf(op)) + " of floats");
  }
}

template <class T>
bool compareNumbers(Op op, T a, T b) {
  switch (op) {
    case Op::Eq:
      return a == b;
    case Op::Ne:
      return a != b;
    case Op::Lt:
      return a < b;
    case Op::Le:
      return a <= b;
    case Op::Gt:
      return a > b;
    case Op::Ge:
      return a >= b;
    default:
      GP_CHECK(false, std::string(nameOf(op)) + " as a comparison");
  }
}

bool isComparison(Op op) { return op >= Op::Eq && op <= Op::Ge; }
bool isTranscendental(Op op) { return op == Op::Pow || (op >= Op::Exp && op <= Op::Lgamma); }

template <class T>
Number evaluateReal(Op op, const Number* operands) {
  T in[3] = {};
  for (int i = 0; i < info(op).operands; ++i) in[i] = static_cast<T>(operands[i].real);
  if (isComparison(op)) return {.integer = compareNumbers(op, in[0], in[1])};
  if (op == Op::IsNan) return {.integer = std::isnan(in[0])};
  if (op == Op::IsInf) return {.integer = std::isinf(in[0])};
  if (isTranscendental(op)) {
    return {.real = static_cast<T>(wideReal<Wider<T>>(op, in[0], in[1]))};
  }
  return {.real = exactReal(op, in[0], in[1], in[2])};
}

int64_t wrapped(uint64_t value) { return static_cast<int64_t>(value); }

int64_t powerOf(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  uint64_t result = 1;
  for (auto square = static_cast<uint64_t>(base); exponent > 0; exponent /= 2, square *= square) {
    if (exponent % 2 != 0) result *= square;
  }
  return wrapped(result);
}

// Division operations; the lowest number over -1 wraps around to itself.
int64_t divide(Op op, int64_t a, int64_t b, KernelError* error) {
  if (b == 0) {
    error->kind = KernelError::DivisionByZero;
    b = 1;
  }
  if (b == -1) {
    return op == Op::DivFloor || op == Op::DivTrunc ? wrapped(0 - static_cast<uint64_t>(a)) : 0;
  }
  const int64_t quotient = a / b, rest = a % b;
  const bool apart = rest != 0 && (rest < 0) != (b < 0);
  switch (op) {
    case Op::DivFloor:
      return apart ? quotient - 1 : quotient;
    case Op::DivTrunc:
      return quotient;
    case Op::Remainder:
      return apart ? rest + b : rest;
    default:
      return rest;
  }
}

int64_t shift(Op op, DType dtype, int64_t a, int64_t b) {
  const int64_t width = static_cast<int64_t>(bytesOf(dtype)) * 8;
  const bool outside = b < 0 || b >= width;
  if (op == Op::Shl) return outside ? 0 : wrapped(static_cast<uint64_t>(a) << b);
  if (outside) return a < 0 ? -1 : 0;
  return a >> b;
}

int64_t integerOp(Op op, DType dtype, int64_t a, int64_t b, KernelError* error) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (op) {
    case Op::Add:
      return wrapped(x + y);
    case Op::Sub:
      return wrapped(x - y);
    case Op::Mul:
      return wrapped(x * y);
    case Op::DivFloor:
    case Op::DivTrunc:
    case Op::Remainder:
    case Op::Fmod:
      return divide(op, a, b, error);
    case Op::Pow:
      return powerOf(a, b);
    case Op::Neg:
      return wrapped(0 - x);
    case Op::Abs:
      return a < 0 ? wrapped(0 - x) : a;
    case Op::Sign:
      return (a > 0) - (a < 0);
    case Op::Maximum:
      return std::max(a, b);
    case Op::Minimum:
      return std::min(a, b);
    case Op::And:
      return a & b;
    case Op::Or:
      return a | b;
    case Op::Xor:
      return a ^ b;
    case Op::Not:
      return dtype == DType::Bool ? static_cast<int64_t>(a == 0) : ~a;
    case Op::Shl:
    case Op::Shr:
      return shift(op, dtype, a, b);
    default:
      GP_CHECK(false, std::string(nameOf(op)) + " of integers");
  }
}

}  // namespace

Number evaluate(Op op, DType dtype, const Number* operands, KernelError* error) {
  if (op == Op::Select) return operands[0].integer != 0 ? operands[1] : operands[2];
  if (dtype == DType::F32) return evaluateReal<float>(op, operands);
  if (dtype == DType::F64) return evaluateReal<double>(op, operands);
  const int64_t a = operands[0].integer;
  const int64_t b = info(op).operands > 1 ? operands[1].integer : 0;
  if (isComparison(op)) return {.integer = compareNumbers(op, a, b)};
  return fit(dtype, {.integer = integerOp(op, dtype, a, b, error)});
}

Number identity(Reduction reduction, DType dtype) {
  const double inf = std::numeric_limits<double>::infinity();
  const bool real = isReal(dtype);
  // Of an integer type: the sign bit alone, and all the others.
  const int width = bytesOf(dtype) * 8;
  const int64_t highest = dtype == DType::U8 ? 255 : wrapped((uint64_t{1} << (width - 1)) - 1);
  const int64_t lowest = dtype == DType::U8 ? 0 : -highest - 1;
  switch (reduction) {
    case Reduction::Prod:
      return real ? Number{.real = 1} : Number{.integer = 1};
    case Reduction::Max:
      return real ? Number{.real = -inf} : Number{.integer = lowest};
    case Reduction::Min:
      return real ? Number{.real = inf} : Number{.integer = highest};
    case Reduction::All:
      return {.integer = 1};
    default:
      return {.integer = 0};  // also 0.0
  }
}

Number combine(Reduction reduction, DType dtype, Number so_far, Number next) {
  static const auto opOf = [](Reduction kind) {
    switch (kind) {
      case Reduction::Sum:
        return Op::Add;
      case Reduction::Prod:
        return Op::Mul;
      case Reduction::Max:
        return Op::Maximum;
      case Reduction::Min:
        return Op::Minimum;
      case Reduction::Any:
        return Op::Or;
      default:
        return Op::And;
    }
  };
  const Number operands[] = {so_far, next};
  KernelError unused;
  return evaluate(opOf(reduction), dtype, operands, &unused);
}

}  // namespace glowplug::lower
