// Machine code by text: shared in the process, linked from the disk, and never of another kernel.
#include "engine/kernel_library.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "codegen/identity.h"
#include "insight/counters.h"
#include "lower/parser.h"
#include "lower/printer.h"

namespace glowplug::engine {
namespace {

namespace fs = std::filesystem;

// y = x <operation> x, under a name that does not tell which.
lower::Kernel kernelOf(const std::string& operation) {
  const lower::Parsed parsed = lower::parse(
      "kernel same\nsizes n\nbuffers\n  x f32 in\n  y f32 out\nnest i0 [n] vector\n"
      "  %0: f32 = load x [i0]\n  %1: f32 = " +
      operation + " %0 %0\n  store y [i0] %1\n");
  EXPECT_FALSE(parsed.error) << parsed.error->text();
  return parsed.kernel;
}

float run(const codegen::CompiledKernel& kernel, float x) {
  float y = 0;
  void* buffers[] = {&x, &y};
  EXPECT_EQ(kernel.run(kernel.launchFor({1}), buffers, nullptr).kind, lower::KernelError::None);
  return y;
}

class KernelLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "glowplug_library_XXXXXX";
    settings_.directory = mkdtemp(pattern.data());
    insight::counters().reset();
  }
  void TearDown() override { fs::remove_all(settings_.directory); }

  KernelLibrary::Code get(KernelLibrary& library, const std::string& operation) {
    const lower::Kernel kernel = kernelOf(operation);
    return library.get(kernel, lower::print(kernel), *codegen::Target::host());
  }
  static uint64_t counted(const char* name) {
    return insight::counters().snapshot().stats.at(name);
  }

  cache::Settings settings_;
};

TEST_F(KernelLibraryTest, OneNameAndTwoTextsAreTwoKernels) {
  KernelLibrary library(settings_);
  const auto sum = get(library, "add"), product = get(library, "mul"), again = get(library, "add");
  EXPECT_EQ(run(*sum, 5), 10);
  EXPECT_EQ(run(*product, 5), 25);
  EXPECT_EQ(sum, again);
  EXPECT_EQ(counted("kernels_compiled"), 2u);
  EXPECT_EQ(counted("kernels_shared"), 1u);
}

TEST_F(KernelLibraryTest, CodeGoesWithItsLastUser) {
  settings_.on = false;
  KernelLibrary library(settings_);
  std::weak_ptr<const codegen::CompiledKernel> sum = get(library, "add");
  EXPECT_TRUE(sum.expired());
  EXPECT_EQ(run(*get(library, "add"), 5), 10);
  EXPECT_EQ(counted("kernels_compiled"), 2u);
}

TEST_F(KernelLibraryTest, AWarmProcessCompilesNothing) {
  {
    KernelLibrary cold(settings_);
    get(cold, "add");
    get(cold, "mul");
  }
  KernelLibrary warm(settings_);
  EXPECT_EQ(run(*get(warm, "add"), 5), 10);
  EXPECT_EQ(run(*get(warm, "mul"), 5), 25);
  EXPECT_EQ(counted("kernels_compiled"), 2u);
  EXPECT_EQ(counted("kernels_loaded"), 2u);
  EXPECT_EQ(warm.disk().counts().hits, 2u);
}

// Nothing but a bug writes such a file; even then it is not run.
TEST_F(KernelLibraryTest, AnObjectOfAnotherKindIsCompiledAgain) {
  const lower::Kernel kernel = kernelOf("add");
  const std::string key = codegen::identityOf(*codegen::Target::host()) + lower::print(kernel);
  for (const std::string& content : {std::string("no object at all"), std::string()}) {
    cache::DiskStore(settings_).save(key, content);
    KernelLibrary library(settings_);
    EXPECT_EQ(run(*get(library, "add"), 5), 10);
    EXPECT_EQ(library.disk().counts().rejected.at("content"), 1u);
    EXPECT_EQ(cache::DiskStore(settings_).load(key)->substr(1, 3), "ELF");
  }
}

TEST(Identity, NamesVersionsTargetAndFeatures) {
  const std::string text = codegen::identityOf(*codegen::Target::host());
  for (const char* part : {"glowplug 0.", "\nllvm 22.", "\ntarget ", "\nfeatures ", "sse2"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(text.back(), '\n');
  EXPECT_NE(text, codegen::identityOf(*codegen::Target::named("x86-64")));
}

}  // namespace
}  // namespace glowplug::engine
