// Kernels as something to call: launches, threads, objects in files, targets of other machines.
#include "codegen/compiled_kernel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "codegen_support.h"
#include "common/check.h"
#include "lower/printer.h"

namespace glowplug::codegen {
namespace {

using namespace testing;
using lower::DType;
using lower::Number;

constexpr const char* kRows = R"(kernel rows
sizes n m
buffers
  x f32 in
  y f32 out
  sums f32 out
  row f32 local [m]
nest i0 [n]
  vector i1 [m]
    %0: f32 = load x [i0*m + i1]
    %1: f32 = sin %0
    store row [i1] %1
    %2: f32 = reduce sum %1 over i1
  store sums [i0] %2
  vector i2 [m]
    %3: f32 = load row [i2]
    %4: f32 = div %3 %2
    store y [i0*m + i2] %4
nest i3 [n] i4 [m] vector
  %5: f32 = load x [i3*m + i4]
  %6: f32 = cos %5
  store y [i3*m + i4 + n*m] %6
)";

Compiler& hostCompiler() {
  static Compiler compiler(*Target::host());
  return compiler;
}

// As many threads as chunks, up to a number, each with every so manieth chunk.
template <int kThreads>
void onThreads(int64_t count, Parallel::Body body, void* context) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([=] {
      for (int64_t i = t; i < count; i += kThreads) body(context, i, i + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> runRows(const CompiledKernel& kernel, int64_t n, int64_t m,
                           const Parallel* parallel) {
  std::vector<float> x(n * m), y(2 * n * m), sums(n);
  // A large angle here and there: the vector math takes another way for the lanes around it.
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 97) * (i % 61 == 0 ? 1e4F : 0.01F);
  void* buffers[] = {x.data(), y.data(), sums.data(), nullptr};
  const Launch launch = kernel.launchFor({n, m});
  EXPECT_EQ(kernel.run(launch, buffers, nullptr, parallel).kind, lower::KernelError::None);
  y.insert(y.end(), sums.begin(), sums.end());
  return y;
}

TEST(CompiledKernel, ThreadsChangeNoBit) {
  const auto kernel = CompiledKernel::compile(kRows, hostCompiler());
  for (const int64_t m : {513, 37}) {
    const Launch launch = kernel->launchFor({1000, m});
    EXPECT_GT(launch.nests[0].chunks(), 3);
    EXPECT_GT(launch.nests[1].chunks(), 3);
    EXPECT_EQ(launch.scratchBytes, (m * 4 + 63) / 64 * 64);
    const std::vector<float> alone = runRows(*kernel, 1000, m, nullptr);
    EXPECT_NE(alone[1], 0.0F);
    const Parallel two{&onThreads<2>}, seven{&onThreads<7>};
    EXPECT_EQ(alone, runRows(*kernel, 1000, m, &two));
    EXPECT_EQ(alone, runRows(*kernel, 1000, m, &seven));
  }
}

TEST(CompiledKernel, NothingToDo) {
  const auto kernel = CompiledKernel::compile(kRows, hostCompiler());
  const Parallel two{&onThreads<2>};
  EXPECT_TRUE(runRows(*kernel, 0, 5, &two).empty());
  const Launch launch = kernel->launchFor({0, 5});
  EXPECT_EQ(launch.nests[0].chunks(), 0);
}

TEST(CompiledKernel, ErrorsComeBack) {
  constexpr const char* kText = R"(kernel pick
sizes n
buffers
  ids i64 in
  x f32 in
  y f32 out
nest i0 [n] vector
  %0: i64 = load ids [i0]
  %1: i64 = check %0 [4]
  %2: f32 = load x [%1]
  store y [i0] %2
)";
  const auto kernel = CompiledKernel::compile(kText, hostCompiler());
  std::vector<int64_t> ids{0, 3, 2, 4, 1};
  std::vector<float> x{10, 20, 30, 40}, y(5);
  void* buffers[] = {ids.data(), x.data(), y.data()};
  const lower::KernelError error = kernel->run(kernel->launchFor({5}), buffers, nullptr);
  EXPECT_EQ(error.kind, lower::KernelError::IndexOutOfRange);
  EXPECT_EQ(error.index, 4);
  EXPECT_EQ(error.extent, 4);
  ids[3] = 0;
  EXPECT_EQ(kernel->run(kernel->launchFor({5}), buffers, nullptr).kind, lower::KernelError::None);
  EXPECT_EQ(y, (std::vector<float>{10, 40, 30, 10, 20}));
}

TEST(CompiledKernel, SeveralInOneObjectThatIsKept) {
  const lower::Kernel rows = kernelOf(kRows);
  const lower::Kernel copy = kernelOf(
      "kernel copy\nsizes n\nbuffers\n  x i32 in\n  y i32 out\nnest i0 [n] vector\n"
      "  %0: i32 = load x [i0]\n  store y [i0] %0\n");
  const std::string object = hostCompiler().object({&rows, &copy});
  EXPECT_EQ(object, hostCompiler().object({&rows, &copy}));  // so that a cache may compare
  std::string problem;
  const auto loaded = CompiledKernel::load({rows, copy}, hostCompiler().target(), object, problem);
  ASSERT_EQ(loaded.size(), 2U) << problem;
  std::vector<int32_t> x{1, 2, 3}, y(3);
  void* buffers[] = {x.data(), y.data()};
  loaded[1]->run(loaded[1]->launchFor({3}), buffers, nullptr);
  EXPECT_EQ(x, y);
}

TEST(CompiledKernel, ForeignObjectsAreRefused) {
  const lower::Kernel rows = kernelOf(kRows);
  const std::string object = hostCompiler().object({&rows});
  const Target& target = hostCompiler().target();
  std::string problem;
  EXPECT_TRUE(CompiledKernel::load({rows}, target, object.substr(0, 100), problem).empty());
  EXPECT_NE(problem, "");
  problem.clear();
  EXPECT_TRUE(CompiledKernel::load({rows}, target, "no object at all", problem).empty());
  EXPECT_NE(problem, "");
  problem.clear();
  lower::Kernel other = rows;
  other.name = "columns";
  EXPECT_TRUE(CompiledKernel::load({other}, target, object, problem).empty());
  EXPECT_EQ(problem, "the object has no code of columns");
}

TEST(CompiledKernel, MalformedTextIsABug) {
  EXPECT_THROW(
      CompiledKernel::compile("kernel x\nnest\n  %0: f32 = frobnicate %1\n", hostCompiler()),
      common::InternalError);
  EXPECT_THROW(CompiledKernel::compile("kernel x\nnest\n  %0: f32 = neg %1\n", hostCompiler()),
               common::InternalError);
}

TEST(Targets, AssemblyForAnotherMachine) {
  const lower::Kernel rows = kernelOf(kRows);
  Compiler compiler(*Target::named("aarch64"));
  const std::string text = compiler.assembly({&rows});
  EXPECT_NE(text.find("Sleef_sinf4_u10advsimd"), std::string::npos);
  EXPECT_NE(text.find("fdiv\tv"), std::string::npos);
  EXPECT_FALSE(compiler.target().runsHere());
}

TEST(Targets, WidthsAreTheirs) {
  const lower::Kernel rows = kernelOf(kRows);
  const auto uses = [&](const char* target, const char* what) {
    return Compiler(*Target::named(target)).assembly({&rows}).find(what) != std::string::npos;
  };
  EXPECT_TRUE(uses("avx512", "%zmm"));
  EXPECT_TRUE(uses("avx2", "%ymm"));
  EXPECT_FALSE(uses("avx2", "%zmm"));
  EXPECT_TRUE(uses("x86-64", "%xmm"));
  EXPECT_FALSE(uses("x86-64", "%ymm"));
  EXPECT_FALSE(Target::named("pdp11"));
}

}  // namespace
}  // namespace glowplug::codegen
