// Every operation on every dtype it takes, and every conversion, against the interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "codegen_support.h"
#include "lower/builder.h"
#include "lower/tables.h"

namespace glowplug::codegen {
namespace {

using namespace testing;
using lower::Affine;
using lower::Builder;
using lower::DType;
using lower::Op;
using lower::Role;
using lower::Value;

std::vector<DType> allDTypes() {
  std::vector<DType> out;
  for (size_t i = 0; i < lower::kindCount<DType>(); ++i) out.push_back(static_cast<DType>(i));
  return out;
}

// y[i] = op(x0[i], x1[i]...), in lanes or one by one.
lower::Kernel single(Op op, DType dtype, bool lanes) {
  const lower::OpInfo& row = lower::info(op);
  Builder b(fmt::format("{}_{}", row.name, lower::nameOf(dtype)));
  const Affine n = b.size("n");
  const Affine i = b.nest({n}, lanes)[0];
  std::vector<Value> in;
  for (int k = 0; k < row.operands; ++k) {
    const DType of = op == Op::Select && k == 0 ? DType::Bool : dtype;
    in.push_back(b.load(b.buffer(fmt::format("x{}", k), of, Role::In), i));
  }
  const Value out = in.size() == 1   ? b.op(op, in[0])
                    : in.size() == 2 ? b.op(op, in[0], in[1])
                                     : b.op(op, in[0], in[1], in[2]);
  b.store(b.buffer("y", out.dtype, Role::Out), i, out);
  return b.take();
}

bool divides(Op op) {
  return op == Op::DivFloor || op == Op::DivTrunc || op == Op::Remainder || op == Op::Fmod;
}

// Zero divisors of integers are errors, tested on their own.
void avoidZero(const lower::Kernel& kernel, Input& input) {
  const DType dtype = kernel.buffers[1].dtype;
  const auto bytes = static_cast<size_t>(lower::bytesOf(dtype));
  for (size_t at = 0; at < input.buffers[1].size(); at += bytes) {
    char* place = input.buffers[1].data() + at;
    if (lower::readNumber(dtype, place).integer == 0)
      lower::writeNumber(dtype, place, {.integer = 3});
  }
}

// What transcendental functions are called with here: where their bound is documented to hold.
double narrowed(Op op, double value) {
  switch (op) {
    case Op::Sinh:
    case Op::Cosh:
    case Op::Exp:
    case Op::Expm1:
    case Op::Sigmoid:
      return std::fmod(value, 80);
    case Op::Exp2:
      return std::fmod(value, 120);
    case Op::Erfc:
      return std::fmod(value, 9);
    case Op::Lgamma:
      return std::isfinite(value) ? std::fmod(std::fabs(value), 1e6) + 2.5 : value;
    case Op::Asinh:
    case Op::Acosh:
      return std::fmod(value, 1e18);
    case Op::Pow:
      return std::fmod(value, 16);
    case Op::Fmod:
    case Op::Remainder:
    case Op::DivFloor:
      return std::fmod(value, 1e5);
    default:
      return value;
  }
}

void narrow(Op op, const lower::Kernel& kernel, Input& input) {
  for (size_t i = 0; i + 1 < kernel.buffers.size(); ++i) {
    const DType dtype = kernel.buffers[i].dtype;
    if (!lower::isFloat(dtype)) continue;
    const auto bytes = static_cast<size_t>(lower::bytesOf(dtype));
    for (size_t at = 0; at < input.buffers[i].size(); at += bytes) {
      char* place = input.buffers[i].data() + at;
      const double value = lower::readNumber(dtype, place).real;
      const double kept = narrowed(op, std::fabs(value) < 1e-30 ? std::copysign(0, value) : value);
      lower::writeNumber(dtype, place, {.real = kept});
    }
  }
}

class EachOp : public ::testing::TestWithParam<size_t> {};

TEST_P(EachOp, IsTheInterpreters) {
  const auto op = static_cast<Op>(GetParam());
  const bool exact = op != Op::Pow && op != Op::Sigmoid && (op < Op::Exp || op > Op::Lgamma);
  Random random(GetParam());
  for (const DType dtype : allDTypes()) {
    if (op == Op::Cast || !lower::takes(lower::info(op).dtypes, dtype)) continue;
    for (const bool lanes : {true, false}) {
      const lower::Kernel kernel = single(op, dtype, lanes);
      Input input = randomInput(kernel, {lanes ? 601 : 77}, random);
      if (divides(op) && lower::isInt(dtype)) avoidZero(kernel, input);
      if (!exact || divides(op)) narrow(op, kernel, input);
      const Tolerance tolerance{lower::isFloat(dtype) && !exact ? 2 : 0};
      // SLEEF takes a shorter way if it can for all lanes of a vector: bits depend on neighbours.
      const bool lanesMeet = op == Op::Sin || op == Op::Cos || op == Op::Tan;
      expectSame(kernel, input, tolerance, lanesMeet ? tolerance : Tolerance{});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachOp, ::testing::Range<size_t>(0, lower::kindCount<Op>()),
                         [](const auto& info) {
                           return std::string(lower::nameOf(static_cast<Op>(info.param)));
                         });

class EachCast : public ::testing::TestWithParam<DType> {};

TEST_P(EachCast, IsTheInterpreters) {
  Random random(3);
  for (const DType to : allDTypes()) {
    for (const bool lanes : {true, false}) {
      Builder b(fmt::format("to_{}", lower::nameOf(to)));
      const Affine n = b.size("n");
      const Affine i = b.nest({n}, lanes)[0];
      const Value x = b.load(b.buffer("x", GetParam(), Role::In), i);
      b.store(b.buffer("y", to, Role::Out), i, b.cast(to, x));
      const lower::Kernel kernel = b.take();
      expectSame(kernel, randomInput(kernel, {lanes ? 601 : 101}, random));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachCast, ::testing::ValuesIn(allDTypes()),
                         [](const auto& info) { return std::string(lower::nameOf(info.param)); });

// All 65536 numbers of the 16-bit dtypes, to f32 and back; and f32 around every one of them.
TEST(Casts, HalvesAreExhaustive) {
  for (const DType half : {DType::BF16, DType::F16}) {
    Builder b("halves");
    const Affine n = b.size("n");
    const Affine i = b.nest({n}, true)[0];
    const Value wide = b.cast(DType::F32, b.load(b.buffer("x", half, Role::In), i));
    b.store(b.buffer("wide", DType::F32, Role::Out), i, wide);
    const Value near = b.load(b.buffer("near", DType::F32, Role::In), i);
    b.store(b.buffer("back", half, Role::Out), i, b.cast(half, near));
    const lower::Kernel kernel = b.take();
    Input input{
        {65536}, {}, {Bytes(65536 * 2), Bytes(65536 * 4), Bytes(65536 * 4), Bytes(65536 * 2)}};
    Random random(5);
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto narrow = static_cast<uint16_t>(bits);
      std::memcpy(input.buffers[0].data() + bits * 2, &narrow, 2);
      const float base =
          half == DType::BF16 ? lower::floatOfBf16(narrow) : lower::floatOfF16(narrow);
      // Half-way to the next one in a third of the cases, anywhere about it in the others.
      const uint32_t low = random() % 3 == 0 ? (half == DType::BF16 ? 0x8000 : 0x1000)
                                             : static_cast<uint32_t>(random()) & 0xffff;
      const uint32_t f32 = std::bit_cast<uint32_t>(base) + low;
      std::memcpy(input.buffers[2].data() + bits * 4, &f32, 4);
    }
    expectSame(kernel, input);
  }
}

TEST(Errors, DivisionByZeroIsReported) {
  for (const char* op : {"div_floor", "div_trunc", "remainder", "fmod"}) {
    const std::string text = fmt::format(R"(kernel divide
sizes n
buffers
  x i32 in
  y i32 in
  z i32 out
nest i0 [n] vector
  %0: i32 = load x [i0]
  %1: i32 = load y [i0]
  %2: i32 = {} %0 %1
  store z [i0] %2
)",
                                         op);
    const lower::Kernel kernel = kernelOf(text);
    for (const Target& target : targetsHere()) {
      Random random(1);
      Input input = randomInput(kernel, {37}, random);
      avoidZero(kernel, input);
      EXPECT_EQ(compiled(kernel, input, target).error.kind, lower::KernelError::None);
      std::memset(input.buffers[1].data() + 36 * 4, 0, 4);
      EXPECT_EQ(compiled(kernel, input, target).error.kind, lower::KernelError::DivisionByZero);
    }
  }
}

}  // namespace
}  // namespace glowplug::codegen
