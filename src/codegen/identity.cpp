#include "codegen/identity.h"

#include <fmt/format.h>
#include <llvm-c/Core.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <set>

namespace glowplug::codegen {

extern const char* const kFingerprint;  // of the build: scripts/fingerprint.cmake

std::string identityOf(const Target& target) {
  // The library that is loaded, which need not be the one that was compiled against.
  unsigned major = 0, minor = 0, patch = 0;
  LLVMGetVersion(&major, &minor, &patch);
  std::set<std::string> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    if (feature.second) features.insert(feature.first().str());
  }
  return fmt::format("glowplug {} {}\nllvm {}.{}.{}\ntarget {} {} {}\nfeatures {}\n",
                     GLOWPLUG_VERSION, kFingerprint, major, minor, patch, target.name,
                     target.triple, target.cpu, fmt::join(features, " "));
}

}  // namespace glowplug::codegen
