// What gdb and perf are told of loaded code.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "codegen/compiled_kernel.h"

// gdb's interface, as LLVM defines it.
extern "C" {
struct jit_code_entry {
  jit_code_entry *next, *previous;
  const char* file;
  uint64_t bytes;
};
struct jit_descriptor {
  uint32_t version, action;
  jit_code_entry *relevant, *first;
};
extern jit_descriptor __jit_debug_descriptor;
}

namespace glowplug::codegen {
namespace {

std::shared_ptr<const CompiledKernel> kernelNamed(const std::string& name) {
  Compiler compiler(*Target::host());
  return CompiledKernel::compile("kernel " + name +
                                     "\nsizes n\nbuffers\n  x f32 in\n  y f32 out\n"
                                     "nest i0 [n] vector\n  %0: f32 = load x [i0]\n"
                                     "  %1: f32 = add %0 %0\n  store y [i0] %1\n",
                                 compiler);
}

bool gdbKnows(std::string_view symbol) {
  for (const auto* entry = __jit_debug_descriptor.first; entry != nullptr; entry = entry->next) {
    if (std::string_view(entry->file, entry->bytes).find(symbol) != std::string_view::npos)
      return true;
  }
  return false;
}

TEST(Listeners, GdbKnowsKernelsByNameAndTheyStay) {
  const auto before = kernelNamed("before");
  EXPECT_EQ(Session::shared().tell(Session::Listener::Gdb), "");
  auto after = kernelNamed("after");
  EXPECT_FALSE(gdbKnows("before.0"));
  EXPECT_TRUE(gdbKnows("after.0"));
  after.reset();
  EXPECT_TRUE(gdbKnows("after.0"));
}

TEST(Listeners, PerfFindsKernelsInADump) {
  namespace fs = std::filesystem;
  std::string directory = ::testing::TempDir() + "glowplug_perf_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  setenv("JITDUMPDIR", directory.c_str(), 1);
  EXPECT_EQ(Session::shared().tell(Session::Listener::Perf), "");
  const auto kernel = kernelNamed("profiled");
  std::string dumps;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    std::ifstream in(entry.path(), std::ios::binary);
    if (entry.is_regular_file()) dumps.append(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_NE(dumps.find("profiled.0"), std::string::npos);
  fs::remove_all(directory);
}

}  // namespace
}  // namespace glowplug::codegen
