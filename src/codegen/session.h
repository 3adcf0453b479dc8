#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lower/launch.h"
#include "lower/loop_ir.h"

namespace glowplug::codegen {

// Machine code in this process. It goes when the last holder lets go of it; who calls a function
// holds it meanwhile.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  // The function of a nest; null if the object has no such kernel.
  virtual lower::NestFunction function(const lower::Kernel& kernel, size_t nest) const = 0;
};

// Links objects into the process (LLVM's ORC). Any thread may use it at any time, without the GIL.
// Each object is a world of its own: names in two objects do not clash.
class Session {
 public:
  // The session of the process. It is never destroyed, so that code may be let go of at exit.
  static Session& shared();

  // Tells gdb, or perf, of code that is loaded from now on: kernels have names in backtraces and in
  // profiles (for perf: `perf record -k 1`, then `perf inject --jit`). With gdb, code stays when it
  // is let go of. Returns why not, or an empty string.
  enum class Listener { Gdb, Perf };
  virtual std::string tell(Listener listener) = 0;

  // Links what Compiler::object() made, now or in another process. Returns null and says why in
  // `problem` when LLVM refuses it: a damaged or foreign file, not a bug. The caller has made sure
  // that nobody tampered with it: linking does not make hostile code harmless.
  virtual std::shared_ptr<const LoadedCode> load(const std::string& object,
                                                 std::string& problem) = 0;

  virtual ~Session() = default;
};

}  // namespace glowplug::codegen
