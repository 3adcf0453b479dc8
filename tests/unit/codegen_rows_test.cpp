// Kernels over rows, on every target here, against what eager gave
// (tests/golden/lower/make_rows.py).
#include "lower/row_kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "codegen_support.h"
#include "lower/tables.h"

namespace glowplug::codegen {
namespace {

using namespace testing;
using lower::DType;
using lower::RowReduction;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) out.push_back(part);
  return out;
}

Bytes bytesOfText(DType dtype, const std::string& text) {
  Bytes out;
  for (const std::string& number : split(text, ',')) {
    const uint64_t value = std::stoull(number, nullptr, 16);
    const char* from = reinterpret_cast<const char*>(&value);
    out.insert(out.end(), from, from + lower::bytesOf(dtype));
  }
  return out;
}

lower::Kernel kernelNamed(const std::string& name, DType dtype, size_t buffers) {
  static const std::vector<std::string> kReductions = {"sum", "mean", "amax", "amin", "var"};
  for (size_t i = 0; i < kReductions.size(); ++i) {
    if (name == kReductions[i]) return lower::rowReduction(static_cast<RowReduction>(i), dtype);
  }
  if (name == "layer_norm") return lower::rowLayerNorm(dtype, buffers > 2, buffers > 3);
  return lower::rowSoftmax(dtype, name == "log_softmax");
}

TEST(RowKernels, AreEagers) {
  std::ifstream file(GLOWPLUG_GOLDEN "/lower/rows.txt");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const std::vector<std::string> fields = split(line, '|');
    const DType dtype = *lower::kindNamed<DType>(fields[1]);
    const std::vector<std::string> texts = split(fields[5], ';');
    const lower::Kernel kernel = kernelNamed(fields[0], dtype, texts.size());
    Input input{{std::stoll(fields[2]), std::stoll(fields[3])}, {}, {}};
    if (!kernel.scalars.empty()) input.scalars.push_back({.real = std::stod(fields[4])});
    Outcome wanted;
    for (const std::string& text : texts) {
      wanted.buffers.push_back(bytesOfText(dtype, text));
      input.buffers.push_back(wanted.buffers.back());
    }
    std::memset(input.buffers.back().data(), 0, input.buffers.back().size());
    for (size_t i = texts.size(); i < kernel.buffers.size(); ++i) {
      wanted.buffers.emplace_back();
      input.buffers.emplace_back();
    }
    // Sums in another order than eager's; of bf16 the last bit may round to the other side. Eager's
    // layer norm is x * scale - mean * scale, which does not give 0 for a mean.
    const Tolerance tolerance{dtype == DType::BF16 ? 1 : 0, dtype == DType::F64   ? 1e-13
                                                            : dtype == DType::F32 ? 4e-6
                                                                                  : 3e-5};
    for (const Target& target : targetsHere()) {
      EXPECT_EQ(difference(kernel, wanted, compiled(kernel, input, target), tolerance), "")
          << target.name << " " << line.substr(0, 60);
    }
  }
  EXPECT_EQ(lines, 99);
}

}  // namespace
}  // namespace glowplug::codegen
