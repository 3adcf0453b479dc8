#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/session.h"
#include "lower/launch.h"
#include "lower/loop_ir.h"

// A kernel as something to call: compile once, plan a launch for each set of sizes, run it.
namespace glowplug::codegen {

// Calls body(context, begin, end) for disjoint ranges that cover [0, count), perhaps from several
// threads, and comes back when all are done. at::parallel_for with a grain of 1 is one.
struct Parallel {
  using Body = void (*)(void* context, int64_t begin, int64_t end);
  void (*run)(int64_t count, Body body, void* context) = nullptr;
};

// How one nest is run for some sizes: in chunks of items that depend on the kernel, the target and
// the sizes alone, so that the number of threads changes no bit of a result.
struct NestLaunch {
  lower::NestFunction function = nullptr;
  int64_t items = 0;
  int64_t chunk = 1;  // items; the last chunk may have fewer

  int64_t chunks() const { return (items + chunk - 1) / chunk; }
};

struct Launch {
  std::vector<int64_t> sizes;
  std::vector<NestLaunch> nests;
  int64_t scratchBytes = 0;  // for each chunk that runs
};

class CompiledKernel {
 public:
  // Compiles verified kernels into one object and links it. Results are parallel to the kernels;
  // names must differ. A refusal of LLVM is a bug and throws InternalError.
  static std::vector<std::shared_ptr<const CompiledKernel>> compile(
      std::vector<lower::Kernel> kernels, Compiler& compiler);
  // One kernel from its text form. Malformed text throws InternalError with all messages.
  static std::shared_ptr<const CompiledKernel> compile(std::string_view text, Compiler& compiler);
  // From what Compiler::object() made of these kernels earlier. Empty, and a reason in `problem`,
  // if the object is damaged or of other kernels.
  static std::vector<std::shared_ptr<const CompiledKernel>> load(std::vector<lower::Kernel> kernels,
                                                                 const Target& target,
                                                                 const std::string& object,
                                                                 std::string& problem);

  const lower::Kernel& kernel() const { return kernel_; }

  // The sizes in the kernel's order: extents and strides, in elements.
  Launch launchFor(std::vector<int64_t> sizes) const;

  // Runs all nests, one after the other. `buffers` has a pointer for each of the kernel's buffers
  // (those of Locals are not looked at), `scalars` a number for each scalar. Any threads may run
  // one kernel at a time, with one launch too. With an error the contents of outputs are of no use.
  lower::KernelError run(const Launch& launch, void* const* buffers, const lower::Number* scalars,
                         const Parallel* parallel = nullptr) const;

 private:
  CompiledKernel(lower::Kernel kernel, int lanes, std::shared_ptr<const LoadedCode> code);

  lower::Kernel kernel_;
  int lanes_;
  std::shared_ptr<const LoadedCode> code_;
  std::vector<lower::NestFunction> functions_;
};

}  // namespace glowplug::codegen
