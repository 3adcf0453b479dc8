// What a kernel costs to compile and how fast it runs: codegen_bench [target].
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "codegen/compiled_kernel.h"
#include "common/check.h"
#include "lower/parser.h"

namespace {

using namespace glowplug;
using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

struct Sample {
  const char* what;
  const char* text;
};

constexpr Sample kSamples[] = {
    {"add + relu", R"(kernel add_relu
sizes n
buffers
  a f32 in
  b f32 in
  y f32 out
nest i0 [n] vector
  %0: f32 = load a [i0]
  %1: f32 = load b [i0]
  %2: f32 = add %0 %1
  %3: f32 = constant 0
  %4: f32 = maximum %2 %3
  store y [i0] %4
)"},
    {"gelu(x*s+b), erf", R"(kernel gelu
sizes n m
buffers
  a f32 in
  s f32 in
  b f32 in
  y f32 out
nest i0 [n] i1 [m] vector
  %0: f32 = load a [i0*m + i1]
  %1: f32 = load s [i1]
  %2: f32 = mul %0 %1
  %3: f32 = load b [i1]
  %4: f32 = add %2 %3
  %5: f32 = constant 0.7071067811865476
  %6: f32 = mul %4 %5
  %7: f32 = erf %6
  %8: f32 = constant 1
  %9: f32 = add %7 %8
  %10: f32 = constant 0.5
  %11: f32 = mul %4 %10
  %12: f32 = mul %11 %9
  store y [i0*m + i1] %12
)"},
    {"softmax", R"(kernel softmax
sizes n m
buffers
  a f32 in
  y f32 inout
nest i0 [n]
  vector i1 [m]
    %0: f32 = load a [i0*m + i1]
    %1: f32 = reduce max %0 over i1
  vector i2 [m]
    %2: f32 = load a [i0*m + i2]
    %3: f32 = sub %2 %1
    %4: f32 = exp %3
    %5: f32 = reduce sum %4 over i2
    store y [i0*m + i2] %4
  vector i3 [m]
    %6: f32 = load y [i0*m + i3]
    %7: f32 = div %6 %5
    store y [i0*m + i3] %7
)"},
    {"layer norm, bf16", R"(kernel layer_norm
sizes n m
buffers
  a bf16 in
  w bf16 in
  b bf16 in
  y bf16 out
nest i0 [n]
  vector i1 [m]
    %0: bf16 = load a [i0*m + i1]
    %1: f32 = cast %0
    %2: f32 = reduce welford_mean %1 over i1
    %3: f32 = reduce welford_m2 %1 over i1
  %4: i64 = index [m]
  %5: f32 = cast %4
  %6: f32 = div %3 %5
  %7: f32 = constant 1e-05
  %8: f32 = add %6 %7
  %9: f32 = rsqrt %8
  vector i2 [m]
    %10: bf16 = load a [i0*m + i2]
    %11: f32 = cast %10
    %12: f32 = sub %11 %2
    %13: f32 = mul %12 %9
    %14: bf16 = load w [i2]
    %15: f32 = cast %14
    %16: f32 = mul %13 %15
    %17: bf16 = load b [i2]
    %18: f32 = cast %17
    %19: f32 = add %16 %18
    %20: bf16 = cast %19
    store y [i0*m + i2] %20
)"},
};

lower::Kernel parsed(const char* text) {
  lower::Parsed out = lower::parse(text);
  GP_CHECK(!out.error, out.error->text());
  return std::move(out.kernel);
}

// The least of several runs on 4096 x 768 elements, on one thread.
double runTime(const codegen::CompiledKernel& kernel) {
  constexpr int64_t kRows = 4096, kColumns = 768;
  const bool flat = kernel.kernel().sizes.size() == 1;
  const codegen::Launch launch = kernel.launchFor(flat ? std::vector<int64_t>{kRows * kColumns}
                                                       : std::vector<int64_t>{kRows, kColumns});
  std::vector<std::vector<float>> memory(kernel.kernel().buffers.size(),
                                         std::vector<float>(kRows * kColumns, 0.25F));
  std::vector<void*> buffers;
  for (auto& values : memory) buffers.push_back(values.data());
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    kernel.run(launch, buffers.data(), nullptr);
    best = std::min(best, milliseconds(start));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const auto target = argc > 1 ? codegen::Target::named(argv[1]) : codegen::Target::host();
  GP_CHECK(target && target->runsHere(), "no such target here");
  auto start = Clock::now();
  codegen::Compiler compiler(*target);
  codegen::CompiledKernel::compile(kSamples[0].text, compiler);
  fmt::print("{}: first kernel of the process {:.1f} ms\n", target->name, milliseconds(start));
  fmt::print("{:20} {:>10} {:>8} {:>8} {:>10} {:>12}\n", "kernel", "LLVM IR ms", "object", "link",
             "bytes", "run 4096x768");
  std::vector<lower::Kernel> all;
  for (const Sample& sample : kSamples) {
    const lower::Kernel kernel = parsed(sample.text);
    double emit = 1e9, object = 1e9, link = 1e9;
    std::string bytes;
    std::vector<std::shared_ptr<const codegen::CompiledKernel>> made;
    for (int i = 0; i < 10; ++i) {
      start = Clock::now();
      compiler.emitOnly({&kernel});
      emit = std::min(emit, milliseconds(start));
      start = Clock::now();
      bytes = compiler.object({&kernel});
      object = std::min(object, milliseconds(start));
      start = Clock::now();
      std::string problem;
      made = codegen::CompiledKernel::load({kernel}, *target, bytes, problem);
      link = std::min(link, milliseconds(start));
      GP_CHECK(problem.empty(), problem);
    }
    fmt::print("{:20} {:10.2f} {:8.2f} {:8.2f} {:10} {:9.2f} ms\n", sample.what, emit, object, link,
               bytes.size(), runTime(*made[0]));
    all.push_back(kernel);
  }
  std::vector<lower::Kernel> many;
  for (int copy = 0; copy < 5; ++copy) {
    for (lower::Kernel kernel : all) {
      kernel.name += std::to_string(copy);
      many.push_back(std::move(kernel));
    }
  }
  start = Clock::now();
  const auto made = codegen::CompiledKernel::compile(many, compiler);
  fmt::print("{} kernels in one object: {:.2f} ms a kernel\n", made.size(),
             milliseconds(start) / static_cast<double>(made.size()));
}
