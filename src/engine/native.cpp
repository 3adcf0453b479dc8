#include "engine/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <stdexcept>

#include "codegen/compiled_kernel.h"
#include "common/check.h"
#include "common/log.h"
#include "engine/entry.h"
#include "insight/counters.h"
#include "lower/fused.h"
#include "lower/printer.h"
#include "opt/passes.h"

namespace glowplug::engine {
namespace {

using codegen::CompiledKernel;
using common::Channel;
using common::Reason;
using insight::counters;
using insight::Stat;
using opt::Node;

// A compiled kernel with its sizes.
class Code final : public aten::KernelCode {
 public:
  Code(std::shared_ptr<const CompiledKernel> kernel, std::vector<int64_t> sizes)
      : kernel_(std::move(kernel)), launch_(kernel_->launchFor(std::move(sizes))) {}

  void run(void* const* buffers, Parallel parallel) const override {
    // Locals have no address.
    constexpr size_t kFew = 32;
    void* few[kFew] = {};
    std::vector<void*> many;
    const size_t count = kernel_->kernel().buffers.size();
    void** all = few;
    if (count > kFew) {
      many.resize(count);
      all = many.data();
    }
    for (size_t i = 0; i < count; ++i) {
      if (kernel_->kernel().buffers[i].role != lower::Role::Local) all[i] = buffers[i];
    }
    const codegen::Parallel threads{parallel};
    const lower::KernelError error = kernel_->run(launch_, all, nullptr, &threads);
    if (error.kind == lower::KernelError::DivisionByZero) {
      throw std::runtime_error("ZeroDivisionError");
    }
    GP_CHECK(error.kind == lower::KernelError::None, "a kernel without indices");
  }

 private:
  std::shared_ptr<const CompiledKernel> kernel_;
  codegen::Launch launch_;
};

// Compiled kernels of the process by name, which tells the text: models repeat their blocks.
class KernelTable {
 public:
  std::shared_ptr<const CompiledKernel> find(const std::string& name) {
    const std::lock_guard held(lock_);
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : found->second.lock();
  }
  void add(const std::shared_ptr<const CompiledKernel>& kernel) {
    const std::lock_guard held(lock_);
    std::erase_if(kernels_, [](const auto& entry) { return entry.second.expired(); });
    kernels_[kernel->kernel().name] = kernel;
  }

 private:
  std::mutex lock_;
  std::map<std::string, std::weak_ptr<const CompiledKernel>> kernels_;
};

KernelTable& kernelTable() {
  static KernelTable* table = new KernelTable;
  return *table;
}

codegen::Compiler& compilerOf(const codegen::Target& target) {
  // One thread compiles.
  thread_local std::unique_ptr<codegen::Compiler> compiler;
  if (!compiler) compiler = std::make_unique<codegen::Compiler>(target);
  return *compiler;
}

std::vector<std::shared_ptr<const CompiledKernel>> compileAll(std::vector<lower::Kernel> kernels,
                                                              const codegen::Target& target) {
  std::vector<std::shared_ptr<const CompiledKernel>> out;
  std::vector<lower::Kernel> missing;
  for (lower::Kernel& kernel : kernels) {
    out.push_back(kernelTable().find(kernel.name));
    const bool listed = std::any_of(missing.begin(), missing.end(),
                                    [&](const auto& other) { return other.name == kernel.name; });
    if (!out.back() && !listed) missing.push_back(kernel);
  }
  if (missing.empty()) return out;
  counters().add(Stat::kernels_compiled, missing.size());
  const auto made = CompiledKernel::compile(std::move(missing), compilerOf(target));
  for (size_t i = 0; i < out.size(); ++i) {
    for (const auto& kernel : made) {
      if (kernel->kernel().name == kernels[i].name) out[i] = kernel;
    }
  }
  for (const auto& kernel : made) kernelTable().add(kernel);
  return out;
}

aten::KernelTensor kernelTensor(const opt::Graph& graph, common::ValueId id) {
  const opt::TensorType& type = *graph.type(id);
  return {id, type.dtype, type.sizes, type.strides};
}

OperatorFate fateOf(const Node& node, size_t firstKernel, bool packed) {
  if (node.state == Node::State::Removed) {
    return {node.event, OperatorFate::Kind::Removed, 0, {}};
  }
  if (node.state == Node::State::Grouped) {
    return {node.event, OperatorFate::Kind::Kernel, firstKernel + node.group, {}};
  }
  if (packed || node.state == Node::State::Packed) {
    return {node.event, OperatorFate::Kind::Packed, 0, {}};
  }
  return {node.event, OperatorFate::Kind::Aten, 0, node.reason};
}

void count(const NativeReport& report) {
  for (const OperatorFate& fate : report.operators) {
    const bool native = fate.kind != OperatorFate::Kind::Aten;
    counters().add(native ? Stat::ops_native : Stat::ops_aten);
    if (fate.reason) counters().addNative(*fate.reason);
  }
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

NativeJob::NativeJob(const trace::Recording& recording, const replay::Plan& plan, std::string name,
                     const common::Options& options, const TensorOf& tensorOf,
                     const NativeJob* before)
    : name_(std::move(name)), slot_(plan.nativeSlot()) {
  const ir::Trace& trace = recording.trace;
  const std::pair<bool, std::string_view> switches[] = {
      {options.noop, "noop"},     {options.dce, "dce"},
      {options.layout, "layout"}, {options.convolutions, "convolutions"},
      {options.fuse, "fuse"},     {options.cse, "cse"}};
  for (const auto& [on, pass] : switches) {
    if (!on) without_.push_back(pass);
  }
  const bool ownOperators =
      std::any_of(trace.events.begin(), trace.events.end(), [&](const ir::Event& event) {
        return event.kind == ir::EventKind::Op && recording.ops.isOwn(event.op);
      });
  convolutions_ = before ? before->convolutions_ : std::make_shared<aten::PackedConvolutions>();
  if (before) weights_ = before->weights_;
  if (before) tensors_ = before->tensors_;
  for (size_t s = 0; s < plan.segments().size(); ++s) {
    const replay::Segment& segment = plan.segments()[s];
    // An operator that raises after something was changed leaves values of all that ran before.
    const size_t end = std::clamp(plan.firstCommit(), segment.begin, segment.end);
    for (size_t e = end; e < segment.end; ++e) {
      if (trace.events[e].kind != ir::EventKind::Op) continue;
      left_.push_back({e, OperatorFate::Kind::Aten, 0, Reason::native_committed});
    }
    if (end == segment.begin) continue;
    graphs_.push_back(
        opt::graphOf(trace, segment.begin, end, plan.escapes(s, end), [&](common::OperatorId op) {
          return recording.ops.mayWrite(op) || recording.ops.isOwn(op);
        }));
    // An operator of ours may make an alias of a weight that has a version counter of its own.
    if (options.freeze && !before && !ownOperators) findWeights(graphs_.back(), tensorOf);
    for (const auto& [id, tensor] : tensors_) graphs_.back().frozen[id.index()] = true;
  }
}

std::shared_ptr<const NativeReport> NativeJob::report() const {
  const auto made = report_.load();
  if (!made) return nullptr;
  auto out = std::make_shared<NativeReport>(*made);
  for (const auto& mismatches : mismatches_) out->mismatches += mismatches->load();
  return out;
}

void NativeJob::run() {
  auto report = std::make_shared<NativeReport>();
  const auto start = std::chrono::steady_clock::now();
  try {
    compile(*report);
  } catch (const std::exception& error) {
    report->failure = error.what();
    counters().addNative(Reason::native_failed);
    common::log(Channel::Native, "{}: stays in tier 1: {}", name_, error.what());
    for (OperatorFate& fate : report->operators) {
      if (fate.kind != OperatorFate::Kind::Aten) fate.reason = Reason::native_failed;
      fate.kind = OperatorFate::Kind::Aten;
    }
  }
  addPhaseTime("native", secondsSince(start));
  count(*report);
  report_.store(std::move(report));
}

void NativeJob::compile(NativeReport& report) {
  const std::optional<codegen::Target> target = codegen::Target::host();
  auto code = std::make_shared<aten::NativeCode>();
  std::vector<lower::Kernel> kernels;
  std::vector<std::vector<int64_t>> sizes;
  report.operators = left_;
  for (opt::Graph& graph : graphs_) {
    for (const opt::PassTime& time : opt::runPasses(graph, without_)) {
      addPhaseTime(time.name.data(), time.seconds);
    }
    addLinears(graph, *code);
    addConvolutions(graph, *code);
    const size_t first = kernels.size();
    for (const opt::Group& group : graph.groups) {
      lower::FusedKernel fused = lower::lowerFused(graph, group);
      if (!fused.kernel || !target) {
        for (const size_t n : group.members) {
          graph.nodes[n].state = Node::State::Kept;
          graph.nodes[n].reason = target ? Reason::native_operand : Reason::native_target;
        }
        common::log(Channel::Native, "{}: no kernel: {}", name_, fused.refusal);
        continue;
      }
      aten::KernelCall call;
      for (const size_t n : group.members) {
        call.events.push_back(graph.nodes[n].event);
        graph.nodes[n].state = Node::State::Grouped;
        graph.nodes[n].group = kernels.size() - first;
      }
      for (const common::ValueId id : group.inputs) call.inputs.push_back(kernelTensor(graph, id));
      for (const common::ValueId id : group.outputs)
        call.outputs.push_back(kernelTensor(graph, id));
      call.mismatches = std::make_shared<std::atomic<uint64_t>>(0);
      mismatches_.push_back(call.mismatches);
      code->calls.push_back(std::move(call));
      report.kernels.push_back(lower::print(*fused.kernel));
      kernels.push_back(std::move(*fused.kernel));
      sizes.push_back(std::move(fused.sizes));
    }
    addRelaid(graph, *code);
    for (const Node& node : graph.nodes) {
      if (node.state == Node::State::Removed) code->removed.push_back(node.event);
      const bool packed =
          std::any_of(code->linears.begin(), code->linears.end(),
                      [&](const aten::LinearCall& call) { return call.event == node.event; });
      if (!node.op.empty()) report.operators.push_back(fateOf(node, first, packed));
    }
    common::log(Channel::Native, "{}\n{}", name_, opt::print(graph));
  }
  graphs_.clear();
  if (!kernels.empty()) {
    const auto compiled = compileAll(std::move(kernels), *target);
    for (size_t i = 0; i < compiled.size(); ++i) {
      code->calls[i].code = std::make_shared<Code>(compiled[i], std::move(sizes[i]));
    }
  }
  const bool any = !code->calls.empty() || !code->removed.empty() || !code->linears.empty() ||
                   !code->convolutions.empty();
  if (any) slot_->put(std::move(code));
}

}  // namespace glowplug::engine
