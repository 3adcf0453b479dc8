#include "engine/kernel_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "codegen/identity.h"
#include "common/check.h"
#include "common/log.h"
#include "engine/phases.h"
#include "insight/counters.h"
#include "lower/parser.h"

namespace glowplug::engine {
namespace {

using codegen::CompiledKernel;
using codegen::Target;
using insight::counters;
using insight::Stat;

codegen::Compiler& compilerOf(const Target& target) {
  // A compiler serves one thread.
  thread_local std::unique_ptr<codegen::Compiler> compiler;
  if (!compiler || compiler->target().isa != target.isa) {
    compiler = std::make_unique<codegen::Compiler>(target);
  }
  return *compiler;
}

// Asking LLVM for the processor's features takes as long as linking a kernel.
std::string keyOf(const Target& target, const std::string& text) {
  thread_local std::string identity;
  thread_local std::string_view known;
  if (known != target.name) {
    identity = codegen::identityOf(target);
    known = target.name;
  }
  return identity + text;
}

cache::Settings settingsOfProcess() {
  std::vector<std::string> complaints;
  cache::Settings out = cache::Settings::fromEnvironment(complaints);
  for (const std::string& complaint : complaints) common::tell(complaint);
  return out;
}

// GLOWPLUG_TELL=gdb,perf
void tellWhoAsks() {
  const char* wanted = std::getenv("GLOWPLUG_TELL");
  std::string_view names = wanted == nullptr ? "" : wanted;
  while (!names.empty()) {
    const size_t stop = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, stop);
    names.remove_prefix(std::min(stop + 1, names.size()));
    using codegen::Session;
    std::string problem = "known are gdb and perf";
    if (name == "gdb") problem = Session::shared().tell(Session::Listener::Gdb);
    if (name == "perf") problem = Session::shared().tell(Session::Listener::Perf);
    if (!problem.empty()) common::tell(fmt::format("GLOWPLUG_TELL: '{}': {}", name, problem));
  }
}

KernelLibrary* makeLibrary() {
  tellWhoAsks();
  return new KernelLibrary(settingsOfProcess());
}

}  // namespace

KernelLibrary& KernelLibrary::shared() {
  // Never destroyed: a thread may compile while the process ends.
  static KernelLibrary* library = makeLibrary();
  return *library;
}

KernelLibrary::Code KernelLibrary::find(const std::string& text) {
  const std::lock_guard held(lock_);
  const auto found = kernels_.find(text);
  return found == kernels_.end() ? nullptr : found->second.lock();
}

void KernelLibrary::add(const std::string& text, const Code& code) {
  const std::lock_guard held(lock_);
  std::erase_if(kernels_, [](const auto& entry) { return entry.second.expired(); });
  kernels_[text] = code;
}

// From the disk; null if it is not there, or is of no use.
KernelLibrary::Code KernelLibrary::load(const lower::Kernel& kernel, const std::string& key,
                                        const Target& target) {
  const std::optional<std::string> object = disk_.load(key);
  if (!object) return nullptr;
  const Phase link("link");
  std::string problem;
  const auto loaded = CompiledKernel::load({kernel}, target, *object, problem);
  if (!loaded.empty()) return loaded[0];
  disk_.refuse(key, problem);
  return nullptr;
}

std::string KernelLibrary::makeObject(const lower::Kernel& kernel, const Target& target) {
  const Phase codegen("codegen");
  return makeObject_ ? makeObject_(kernel) : compilerOf(target).object({&kernel});
}

void KernelLibrary::warmUp() {
  const Phase phase("warm up");
  const std::optional<Target> target = Target::host();
  if (!target) return;
  constexpr const char* kText =
      "kernel warm_up\nsizes n\nbuffers\n  x f32 in\n  y f32 out\nnest i0 [n] vector\n"
      "  %0: f32 = load x [i0]\n  %1: f32 = add %0 %0\n  store y [i0] %1\n";
  const lower::Parsed parsed = lower::parse(kText);
  GP_CHECK(!parsed.error, parsed.error->text());
  get(parsed.kernel, kText, *target);
}

KernelLibrary::Code KernelLibrary::get(const lower::Kernel& kernel, const std::string& text,
                                       const Target& target) {
  if (Code known = find(text)) {
    counters().add(Stat::kernels_shared);
    return known;
  }
  const std::string key = disk_.settings().on ? keyOf(target, text) : "";
  Code code = disk_.settings().on ? load(kernel, key, target) : nullptr;
  if (code) {
    counters().add(Stat::kernels_loaded);
  } else {
    const std::string object = makeObject(kernel, target);
    const Phase link("link");
    std::string problem;
    const auto made = CompiledKernel::load({kernel}, target, object, problem);
    GP_CHECK(!made.empty(), problem);
    code = made[0];
    counters().add(Stat::kernels_compiled);
    if (disk_.settings().on) disk_.save(key, object);
  }
  add(text, code);
  return code;
}

}  // namespace glowplug::engine
