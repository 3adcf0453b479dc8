#include "codegen/symbols.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "lower/evaluate.h"

#define NAME(function, type, lanes, precision, isa) Sleef_##function##type##lanes##_##precision##isa

// SLEEF's header hides the variants that the compiler's own flags do not allow; only the addresses
// are wanted here.
extern "C" {
#if defined(__x86_64__)
#define MATH(op, function, precision, operands)     \
  void NAME(function, f, 16, precision, avx512f)(); \
  void NAME(function, d, 8, precision, avx512f)();  \
  void NAME(function, f, 8, precision, avx2)();     \
  void NAME(function, d, 4, precision, avx2)();     \
  void NAME(function, f, 4, precision, sse2)();     \
  void NAME(function, d, 2, precision, sse2)();     \
  void NAME(function, f, 1, precision, purec)();    \
  void NAME(function, d, 1, precision, purec)();    \
  void NAME(function, f, 1, precision, purecfma)(); \
  void NAME(function, d, 1, precision, purecfma)();
#include "codegen/math.def"
#undef MATH
#endif
}

namespace glowplug::codegen {
namespace {

int64_t integerPower(int64_t base, int64_t exponent) {
  const lower::Number operands[] = {{.integer = base}, {.integer = exponent}};
  lower::KernelError unused;
  return lower::evaluate(lower::Op::Pow, lower::DType::I64, operands, &unused).integer;
}

template <class Function>
const void* addressOf(Function* function) {
  return reinterpret_cast<const void*>(function);
}

std::vector<Symbol> makeSymbols() {
  std::vector<Symbol> out;
#define TEXT(name) #name
#define SYMBOL(name) out.push_back({TEXT(name), addressOf(&name)});
#if defined(__x86_64__)
#define MATH(op, function, precision, operands)     \
  SYMBOL(NAME(function, f, 16, precision, avx512f)) \
  SYMBOL(NAME(function, d, 8, precision, avx512f))  \
  SYMBOL(NAME(function, f, 8, precision, avx2))     \
  SYMBOL(NAME(function, d, 4, precision, avx2))     \
  SYMBOL(NAME(function, f, 4, precision, sse2))     \
  SYMBOL(NAME(function, d, 2, precision, sse2))     \
  SYMBOL(NAME(function, f, 1, precision, purec))    \
  SYMBOL(NAME(function, d, 1, precision, purec))    \
  SYMBOL(NAME(function, f, 1, precision, purecfma)) \
  SYMBOL(NAME(function, d, 1, precision, purecfma))
#include "codegen/math.def"
#undef MATH
#endif
#undef SYMBOL
#undef TEXT
  // What LLVM turns its intrinsics into where the target has no instruction.
#define LIBM(name, type) out.push_back({#name, addressOf(static_cast<type (*)(type)>(&::name))});
  LIBM(floorf, float)
  LIBM(floor, double)
  LIBM(ceilf, float)
  LIBM(ceil, double)
  LIBM(truncf, float)
  LIBM(trunc, double)
  LIBM(roundevenf, float)
  LIBM(roundeven, double)
#undef LIBM
  out.push_back({"fmaf", addressOf(static_cast<float (*)(float, float, float)>(&::fmaf))});
  out.push_back({"fma", addressOf(static_cast<double (*)(double, double, double)>(&::fma))});
  out.push_back({"memcpy", addressOf(&std::memcpy)});
  out.push_back({"memset", addressOf(&std::memset)});
  out.push_back({kIntegerPowerSymbol, addressOf(&integerPower)});
  return out;
}

}  // namespace

const std::vector<Symbol>& runtimeSymbols() {
  static const std::vector<Symbol> symbols = makeSymbols();
  return symbols;
}

std::string mathSymbol(lower::Op op, bool isDouble, int lanes, const Target& target) {
  const char* isa = lanes == 1 ? target.scalarMath : target.vectorMath;
  switch (op) {
#define MATH(enumerator, function, precision, operands)                                         \
  case lower::Op::enumerator:                                                                   \
    return fmt::format("Sleef_{}{}{}_{}{}", #function, isDouble ? 'd' : 'f', lanes, #precision, \
                       isa);
#include "codegen/math.def"
#undef MATH
    default:
      return {};
  }
}

}  // namespace glowplug::codegen
