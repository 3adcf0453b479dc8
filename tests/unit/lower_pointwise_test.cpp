// Rules of ATen's pointwise operators, interpreted, against what eager gave
// (tests/golden/lower/make_pointwise.py).
#include "lower/pointwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "lower/affine.h"
#include "lower/interpreter.h"
#include "lower/tables.h"

namespace glowplug::lower {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) out.push_back(part);
  return out;
}

struct Memory {
  DType dtype;
  std::vector<char> bytes;
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / bytesOf(dtype); }
};

Memory memoryOf(const std::string& dtype, const std::string& bits) {
  Memory out{*kindNamed<DType>(dtype), {}};
  for (const std::string& number : split(bits, ',')) {
    const uint64_t value = std::stoull(number, nullptr, 16);
    const char* from = reinterpret_cast<const char*>(&value);
    out.bytes.insert(out.bytes.end(), from, from + bytesOf(out.dtype));
  }
  return out;
}

// Empty if the kernel gives the line's result, else what is different.
std::string checkLine(const std::string& line, std::string& refusal) {
  const std::vector<std::string> fields = split(line, '|');
  Memory wanted = memoryOf(fields[2], fields[4]);
  Builder b("line");
  const Affine n = b.size("n");
  const Affine i = b.nest({n}, true)[0];
  PointwiseCall call{fields[0], {}, fields[1], wanted.dtype};
  std::vector<Memory> memory;
  for (const std::string& text : split(fields[3], ';')) {
    const std::vector<std::string> parts = split(text, ':');
    PointwiseOperand operand;
    if (parts[0] == "t" || parts[0] == "z") {
      memory.push_back(memoryOf(parts[1], parts[2]));
      const BufferId buffer =
          b.buffer(fmt::format("x{}", memory.size()), memory.back().dtype, Role::In);
      operand.kind = PointwiseOperand::Tensor;
      operand.hasDims = parts[0] == "t";
      operand.element = b.load(buffer, operand.hasDims ? i : constantIndex(0));
    } else if (parts[0] == "i") {
      operand.kind = PointwiseOperand::Integer;
      operand.integer = std::stoll(parts[1]);
    } else if (parts[0] == "r") {
      operand.kind = PointwiseOperand::Real;
      operand.real = std::stod(parts[1]);
    }
    call.operands.push_back(operand);
  }
  const Value out = lowerPointwise(b, call, refusal);
  if (!out.valid()) return {};
  b.store(b.buffer("y", wanted.dtype, Role::Out), i, out);
  memory.push_back(Memory{wanted.dtype, std::vector<char>(wanted.bytes.size())});
  std::vector<void*> buffers;
  std::vector<int64_t> lengths;
  for (Memory& each : memory) {
    buffers.push_back(each.bytes.data());
    lengths.push_back(each.count());
  }
  KernelError error;
  const int64_t count = wanted.count();
  interpret(b.take(), {buffers.data(), &count, nullptr, &error}, lengths);
  for (int64_t k = 0; k < count; ++k) {
    const Number a = readNumber(wanted.dtype, wanted.bytes.data() + k * bytesOf(wanted.dtype));
    const Number c =
        readNumber(wanted.dtype, memory.back().bytes.data() + k * bytesOf(wanted.dtype));
    if (!isReal(wanted.dtype)) {
      if (a.integer != c.integer)
        return fmt::format("[{}] {} instead of {}", k, c.integer, a.integer);
      continue;
    }
    if (std::isnan(a.real) && std::isnan(c.real)) continue;
    // A few units in the last place, for what SLEEF computes; 16-bit dtypes: one rounding.
    const double unit = wanted.dtype == DType::F64    ? 0x1p-46
                        : wanted.dtype == DType::F32  ? 0x1p-21
                        : wanted.dtype == DType::BF16 ? 0x1p-14
                                                      : 0x1p-14;
    // Eager's vectors compute gelu to within 1e-6, less exactly than its scalars and than the rule.
    const bool gelu = call.op == "aten::gelu" && wanted.dtype != DType::F64;
    if (gelu && std::fabs(a.real - c.real) <= 1e-6 + 0x1p-10 * std::fabs(a.real)) continue;
    if (a.real == c.real || std::fabs(a.real - c.real) <= unit * std::fabs(a.real)) continue;
    return fmt::format("[{}] {} instead of {}", k, c.real, a.real);
  }
  return {};
}

TEST(Pointwise, IsEagers) {
  std::ifstream file(GLOWPLUG_GOLDEN "/lower/pointwise.txt");
  std::set<std::string> refused, seen;
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    std::string refusal;
    const std::string problem = checkLine(line, refusal);
    EXPECT_EQ(problem, "") << line.substr(0, 150);
    if (!refusal.empty()) refused.insert(refusal);
    if (refusal.empty()) seen.insert(line.substr(0, line.find('|')));
  }
  EXPECT_GT(lines, 400);
  EXPECT_EQ(fmt::format("{}", fmt::join(refused, "; ")), "");
  EXPECT_EQ(seen.size(), 69U);  // all rows of pointwise.def but clone
}

std::string refusalOf(std::string_view op, DType dtype, size_t operands) {
  Builder b("refused");
  const Value x = b.load(b.buffer("x", dtype, Role::In), b.nest({b.size("n")})[0]);
  PointwiseOperand operand;
  operand.kind = PointwiseOperand::Tensor;
  operand.element = x;
  std::string refusal;
  const PointwiseCall call{op, std::vector<PointwiseOperand>(operands, operand), {}, dtype};
  EXPECT_FALSE(lowerPointwise(b, call, refusal).valid());
  return refusal;
}

TEST(Pointwise, WhatHasNoRuleIsRefused) {
  EXPECT_EQ(refusalOf("aten::sort", DType::F32, 1), "no rule for aten::sort");
  EXPECT_EQ(refusalOf("aten::exp", DType::I64, 1), "no rule for aten::exp in i64");
  EXPECT_EQ(refusalOf("aten::mul.Tensor", DType::F32, 1), "no rule for aten::mul.Tensor in f32");
  EXPECT_EQ(refusalOf("aten::sub.Tensor", DType::Bool, 2), "no rule for aten::sub.Tensor in bool");
  EXPECT_EQ(refusalOf("aten::bitwise_and", DType::F32, 2), "no rule for aten::bitwise_and in f32");
  EXPECT_EQ(refusalOf("aten::where.self", DType::F32, 2), "no rule for aten::where.self in f32");
}

TEST(Pointwise, PromotionIsTorchs) {
  EXPECT_EQ(promote(DType::U8, DType::I8), DType::I16);
  EXPECT_EQ(promote(DType::U8, DType::I64), DType::I64);
  EXPECT_EQ(promote(DType::Bool, DType::U8), DType::U8);
  EXPECT_EQ(promote(DType::I64, DType::F16), DType::F16);
  EXPECT_EQ(promote(DType::BF16, DType::F16), DType::F32);
  EXPECT_EQ(promote(DType::F32, DType::F64), DType::F64);
}

}  // namespace
}  // namespace glowplug::lower
