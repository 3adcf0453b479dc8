#include "engine/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>

#include "common/check.h"
#include "common/log.h"
#include "engine/kernel_library.h"
#include "engine/native_draft.h"
#include "engine/phases.h"
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

OperatorFate fateOf(const Node& node, size_t firstKernel) {
  if (node.state == Node::State::Removed) {
    return {node.event, OperatorFate::Kind::Removed, 0, {}};
  }
  if (node.state == Node::State::Grouped) {
    return {node.event, OperatorFate::Kind::Kernel, firstKernel + node.group, {}};
  }
  if (node.state == Node::State::Attention) {
    return {node.event, OperatorFate::Kind::Attention, 0, {}};
  }
  if (node.state == Node::State::Packed || node.state == Node::State::Layer) {
    return {node.event, OperatorFate::Kind::Packed, 0, {}};
  }
  return {node.event, OperatorFate::Kind::Aten, 0, node.reason};
}

// In one line, the first time in a process; each is counted and in the entry's report.
void noteFailure(NativeReport& report, const std::string& name, const char* what) {
  static std::atomic<bool> told{false};
  counters().addNative(Reason::native_failed);
  if (report.failure.empty()) report.failure = what;
  const std::string text = fmt::format("{}: native code failed, ATen runs instead: {}", name, what);
  if (told.exchange(true)) {
    common::log(Channel::Native, "{}", text);
  } else {
    common::tell(text);
  }
}

// The operators of that kernel; of all kernels and packed weights without a number.
void giveUp(NativeReport& report, std::optional<size_t> kernel) {
  for (OperatorFate& fate : report.operators) {
    const bool concerned = kernel
                               ? fate.kind == OperatorFate::Kind::Kernel && fate.kernel == *kernel
                               : fate.kind != OperatorFate::Kind::Aten;
    if (concerned) fate = {fate.event, OperatorFate::Kind::Aten, 0, Reason::native_failed};
  }
}

void count(const NativeReport& report) {
  for (const OperatorFate& fate : report.operators) {
    const bool native = fate.kind != OperatorFate::Kind::Aten;
    counters().add(native ? Stat::ops_native : Stat::ops_aten);
    if (fate.reason) counters().addNative(*fate.reason);
  }
}

// Each time the plan makes its schedule anew, which takes about as long as a short call.
constexpr std::chrono::milliseconds kBetweenPublications{25};

std::atomic<uint64_t> calls{0};

class WarmUp final : public Job {
 public:
  void run() override {
    aten::keepsPrimitives();  // reads the table of symbols
    KernelLibrary::shared().warmUp();
  }
  Urgency urgency() const override { return {2, 0}; }
};

}  // namespace

void warmUpNative() {
  static std::shared_ptr<WarmUp> job;  // with the GIL
  if (job) return;
  job = std::make_shared<WarmUp>();
  enqueue(job);
}

NativeJob::NativeJob(const trace::Recording& recording, const replay::Plan& plan, std::string name,
                     const common::Options& options, const TensorOf& tensorOf,
                     const NativeJob* before, const std::shared_ptr<aten::PackedWeights>& weights)
    : name_(std::move(name)),
      slot_(plan.nativeSlot()),
      again_(before != nullptr),
      pooled_(options.pool),
      symbols_(options.symbols) {
  const ir::Trace& trace = recording.trace;
  const std::pair<bool, std::string_view> switches[] = {{options.noop, "noop"},
                                                        {options.dce, "dce"},
                                                        {options.layout, "layout"},
                                                        {options.linears, "linears"},
                                                        {options.attention, "attention"},
                                                        {options.convolutions, "convolutions"},
                                                        {options.prepare, "prepare"},
                                                        {options.fuse, "fuse"},
                                                        {options.cse, "cse"}};
  for (const auto& [on, pass] : switches) {
    if (!on) without_.push_back(pass);
  }
  const bool ownOperators =
      std::any_of(trace.events.begin(), trace.events.end(), [&](const ir::Event& event) {
        return event.kind == ir::EventKind::Op && recording.ops.isOwn(event.op);
      });
  packed_ = before ? before->packed_ : std::make_shared<HeldWeights>(weights);
  if (before) weights_ = before->weights_;
  if (before) rounds_.store(before->rounds_.load());  // its code runs until there is other
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

Urgency NativeJob::urgency() const {
  return {again_ ? 0 : 1, wanted_.load(std::memory_order_relaxed)};
}

void NativeJob::noteWanted() {
  wanted_.store(calls.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

NativeJob::~NativeJob() = default;

void NativeJob::run() {
  if (!being_) prepare();
  try {
    const Phase phase("native");
    if (draft_) {
      makeKernels(*being_, *draft_);
      publish(*draft_, true);
    }
  } catch (const std::exception& error) {
    fail(error);
  }
  draft_.reset();
  if (isAbandoned()) return;
  count(*being_);
  report_.store(std::move(being_));
  done_.store(true, std::memory_order_relaxed);
}

void NativeJob::prepare() {
  being_ = std::make_shared<NativeReport>();
  try {
    const Phase phase("prepare");
    compile();
  } catch (const std::exception& error) {
    fail(error);
  }
}

void NativeJob::fail(const std::exception& error) {
  noteFailure(*being_, name_, error.what());
  giveUp(*being_, std::nullopt);
  slot_->put(std::make_shared<aten::NativeCode>());  // nothing, in the place of a part
  draft_.reset();
}

void NativeJob::compile() {
  NativeReport& report = *being_;
  draft_ = std::make_unique<Draft>();
  Draft& draft = *draft_;
  draft.target = codegen::Target::host();
  draft.code.packing = std::make_shared<aten::PackingTime>();
  draft.code.pooled = pooled_;
  report.operators = left_;
  for (opt::Graph& graph : graphs_) {
    for (const opt::PassTime& time : opt::runPasses(graph, without_)) {
      addPhaseTime(time.name, time.seconds);
    }
    addLinears(graph, draft);
    addConvolutions(graph, draft);
    addAttentions(graph, draft);
    addKernels(graph, report, draft);
    addRelaid(graph, draft);
    if (common::logs(Channel::Native)) {
      common::log(Channel::Native, "{}\n{}", name_, opt::print(graph));
    }
  }
  graphs_.clear();
  publish(draft, true);  // calls begin to pack
}

// The kernels of a graph, and what becomes of each of its operators.
void NativeJob::addKernels(opt::Graph& graph, NativeReport& report, Draft& draft) {
  const Phase phase("kernels");
  const size_t first = draft.kernels.size();
  for (const opt::Group& group : graph.groups) {
    lower::FusedKernel fused = lower::lowerFused(graph, group);
    if (!fused.kernel || !draft.target) {
      for (const size_t n : group.members) {
        graph.nodes[n].state = Node::State::Kept;
        graph.nodes[n].reason = draft.target ? Reason::native_operand : Reason::native_target;
      }
      common::log(Channel::Native, "{}: no kernel: {}", name_, fused.refusal);
      continue;
    }
    aten::KernelCall call;
    for (const size_t n : group.members) {
      call.events.push_back(graph.nodes[n].event);
      graph.nodes[n].state = Node::State::Grouped;
      graph.nodes[n].group = draft.kernels.size() - first;
    }
    for (const common::ValueId id : group.inputs) call.inputs.push_back(kernelTensor(graph, id));
    for (const common::ValueId id : group.outputs) call.outputs.push_back(kernelTensor(graph, id));
    call.mismatches = newMismatches();
    draft.calls.push_back(std::move(call));
    report.kernels.push_back(lower::print(*fused.kernel));
    draft.kernels.push_back(std::move(*fused.kernel));
    draft.sizes.push_back(std::move(fused.sizes));
  }
  for (const Node& node : graph.nodes) {
    if (node.state == Node::State::Removed) draft.code.removed.push_back(node.event);
    if (!node.op.empty()) report.operators.push_back(fateOf(node, first));
  }
  if (!draft.code.removed.empty()) draft.published = false;
}

void NativeJob::makeKernels(NativeReport& report, Draft& draft) {
  for (size_t i = 0; i < draft.kernels.size(); ++i) {
    if (isAbandoned()) return;
    try {
      auto kernel = KernelLibrary::shared().get(draft.kernels[i], report.kernels[i], *draft.target);
      aten::KernelCall call = std::move(draft.calls[i]);
      call.code = std::make_shared<Code>(std::move(kernel), std::move(draft.sizes[i]));
      draft.code.calls.push_back(std::move(call));
      draft.published = false;
      publish(draft, false);
    } catch (const std::exception& error) {
      noteFailure(report, name_, error.what());
      giveUp(report, i);
    }
  }
}

// Hands what is there to the next call of the plan; not too often, unless it is urgent.
void NativeJob::publish(Draft& draft, bool urgent) {
  const auto now = std::chrono::steady_clock::now();
  if (draft.published || isAbandoned()) return;
  if (!urgent && now - draft.lastPublished < kBetweenPublications) return;
  const aten::NativeCode& code = draft.code;
  if (code.calls.size() + code.linears.size() + code.convolutions.size() + code.attentions.size()) {
    rounds_.store(true);
  }
  slot_->put(std::make_shared<const aten::NativeCode>(code));
  draft.published = true;
  draft.lastPublished = now;
}

}  // namespace glowplug::engine
