#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "lower/loop_ir.h"

namespace glowplug::codegen {

// The name of a nest's function in the objects that a Compiler makes.
std::string symbolOf(const lower::Kernel& kernel, size_t nest);

// Turns verified kernels into machine code, several at a time into one object. Needs neither the
// GIL nor Python. One compiler serves one thread at a time; threads take one each.
class Compiler {
 public:
  explicit Compiler(const Target& target);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  const Target& target() const { return target_; }

  // A relocatable ELF object, for Session::load() or a disk cache. Kernels must differ in name.
  // Throws InternalError if LLVM refuses, which is a bug of the emitter.
  std::string object(const std::vector<const lower::Kernel*>& kernels);

  // The same as assembly, and as LLVM IR: for tests and for people.
  std::string assembly(const std::vector<const lower::Kernel*>& kernels);
  std::string llvmText(const std::vector<const lower::Kernel*>& kernels);
  // Makes the LLVM IR and drops it: for measurements.
  void emitOnly(const std::vector<const lower::Kernel*>& kernels);

 private:
  struct Machine;
  Target target_;
  std::unique_ptr<Machine> machine_;
};

}  // namespace glowplug::codegen
