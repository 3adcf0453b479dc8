#include "codegen/target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

namespace glowplug::codegen {
namespace {

constexpr Target kTargets[] = {
#define TARGET(enumerator, name, triple, cpu, lanes, vectors, scalars, half, meaning) \
  {Isa::enumerator, name, triple, cpu, lanes, vectors, scalars, half},
#include "codegen/targets.def"
#undef TARGET
};

bool hostHas(std::initializer_list<const char*> features) {
  static const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  for (const char* feature : features) {
    if (!host.lookup(feature)) return false;
  }
  return true;
}

}  // namespace

bool Target::runsHere() const {
#if defined(__x86_64__)
  const bool v3 = hostHas({"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"});
  switch (isa) {
    case Isa::Avx512:
      return v3 && hostHas({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
    case Isa::Avx2:
      return v3;
    case Isa::Sse2:
      return true;
    case Isa::Neon:
      return false;
  }
#endif
  return false;
}

std::vector<Target> Target::all() { return {std::begin(kTargets), std::end(kTargets)}; }

std::optional<Target> Target::host() {
  for (const Target& target : kTargets) {
    if (target.runsHere()) return target;
  }
  return std::nullopt;
}

std::optional<Target> Target::named(std::string_view name) {
  for (const Target& target : kTargets) {
    if (target.name == name) return target;
  }
  return std::nullopt;
}

}  // namespace glowplug::codegen
