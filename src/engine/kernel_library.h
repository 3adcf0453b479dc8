#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cache/disk_store.h"
#include "codegen/compiled_kernel.h"

namespace glowplug::engine {

// The machine code of this process, by the text of the kernel: models repeat their blocks, entries
// share them, and what another process has compiled is linked from the disk. Holds nothing: code
// goes with its last user. Any thread may ask at any time, without the GIL; two that miss the same
// text at once both make it.
class KernelLibrary {
 public:
  using Code = std::shared_ptr<const codegen::CompiledKernel>;

  explicit KernelLibrary(cache::Settings settings) : disk_(std::move(settings)) {}

  // `text` is what lower::print() gives for the kernel. Names do not count: two texts of one name
  // are two kernels. Throws InternalError if LLVM refuses the kernel.
  Code get(const lower::Kernel& kernel, const std::string& text, const codegen::Target& target);

  // Has LLVM load and set up what the first kernel of a process needs, by making a small one.
  void warmUp();

  cache::DiskStore& disk() { return disk_; }

  // For tests: makes objects instead of the compiler.
  using MakeObject = std::function<std::string(const lower::Kernel&)>;
  void makeObjectsBy(MakeObject make) { makeObject_ = std::move(make); }

  // That of the process, with the environment's settings at the first call, which is with the GIL:
  // Python changes the environment.
  static KernelLibrary& shared();

 private:
  Code find(const std::string& text);
  std::string makeObject(const lower::Kernel& kernel, const codegen::Target& target);
  void add(const std::string& text, const Code& code);
  Code load(const lower::Kernel& kernel, const std::string& key, const codegen::Target& target);

  cache::DiskStore disk_;
  MakeObject makeObject_;
  std::mutex lock_;
  std::unordered_map<std::string, std::weak_ptr<const codegen::CompiledKernel>> kernels_;
};

}  // namespace glowplug::engine
