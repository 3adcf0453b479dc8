// The life of a call: step aside, find a trace whose guards hold, replay it; or record.

#include "engine/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/check.h"
#include "common/events.h"
#include "common/log.h"
#include "cpython/tracing.h"
#include "engine/callee_entries.h"
#include "engine/entry_timing.h"
#include "insight/counters.h"
#include "trace/recorder.h"

namespace glowplug::engine {

using common::CallRecord;
using common::Channel;
using common::Reason;
using common::Refusal;
using cpython::Ref;
using insight::counters;
using insight::Stat;
using replay::Outcome;

namespace {

std::atomic<uint64_t> nextEntry{1};
std::atomic<Stance> currentStance{Stance::Default};
thread_local bool recordingHere = false;
// Recordings of one entry that may end in a refusal, if each has another one.
constexpr size_t kMostRefusals = 4;
constexpr size_t kMostEventsToPrepare = 10000;

}  // namespace

bool isRecording() { return recordingHere; }
void setStance(Stance stance) { currentStance = stance; }
Stance stance() { return currentStance; }

Entry::Entry(PyObject* callable, std::string name, Backend backend, common::Options options,
             bool fullgraph)
    : callable_(Ref::borrow(callable)),
      name_(std::move(name)),
      backend_(std::move(backend)),
      options_(options),
      fullgraph_(fullgraph),
      id_(nextEntry++) {
  if (makesNative()) warmUpNative();
}

Entry::Entry(std::nullptr_t, std::string name, Backend backend, common::Options options,
             size_t depth)
    : name_(std::move(name)),
      backend_(std::move(backend)),
      options_(options),
      fullgraph_(false),
      id_(nextEntry++),
      depth_(depth) {}

Entry::~Entry() = default;

PyObject* Entry::original(const guard::Call& call) const {
  return PyObject_Vectorcall(call.callee, call.args, call.positional, call.kwnames);
}

const char* Entry::bypassReason() {
  if (currentStance == Stance::ForceEager) return "stance";
  if (cpython::tracingActive()) return "tracer_active";
  return aten::bypassReason();
}

PyObject* Entry::stepAside(const guard::Call& call, const char* reason, Timing& timing) {
  auto known = common::reasonNamed(reason);
  counters().add(Stat::bypassed);
  if (known) counters().addRefusal(*known);
  timing.record.kind = CallRecord::Kind::Bypassed;
  timing.record.reason = known ? common::info(*known).id : nullptr;
  int64_t start = timing.mark();
  PyObject* result = original(call);
  timing.record.execute_ns = timing.mark() - start;
  return result;
}

PyObject* Entry::call(PyObject* const* args, size_t positional, PyObject* kwnames) {
  Ref callee = callable_;
  guard::Call call{callee.get(), args, positional, kwnames};
  if (!callee) {
    PyErr_SetString(PyExc_RuntimeError, "this compiled function has been cleared");
    return nullptr;
  }
  return callAs(call);
}

PyObject* Entry::callAs(const guard::Call& call) {
  // Inside a recording the program's own frames are what matters: this one becomes part of them.
  if (recordingHere) return original(call);
  counters().add(Stat::calls);
  Timing timing(*this);
  Stance wanted = currentStance;
  if (const char* reason = bypassReason()) return stepAside(call, reason, timing);
  if (eager_) return stayEager(call, timing);
  std::shared_ptr<TraceGroup> group = groupOfThread();
  if (group) {
    Objects fetched;
    std::optional<size_t> number = group->guards.match(call, fetched);
    timing.record.guard_ns = timing.mark() - timing.record.start_ns;
    PyObject* result = nullptr;
    if (number && replay(*group, *number, call, std::move(fetched), &result, timing)) return result;
    if (!number) noteMiss(group.get(), call);
  } else if (!groups_.empty()) {
    noteMiss(nullptr, call);
  }
  if (PyErr_Occurred()) return nullptr;
  if (eager_) return original(call);
  bool again = !groups_.empty();
  if (again && wanted == Stance::EagerOnRecompile) return stepAside(call, "stance", timing);
  if (again && wanted == Stance::FailOnRecompile) {
    PyErr_Format(PyExc_RuntimeError,
                 "glowplug: %s would have to be recorded again, which the stance fail_on_recompile "
                 "forbids: %s",
                 name_.c_str(), lastMiss_.c_str());
    return nullptr;
  }
  if (recording_) return stepAside(call, "threads", timing);
  return record(call, timing, nullptr);
}

std::shared_ptr<TraceGroup> Entry::groupOfThread() {
  for (size_t i = 0; i < groups_.size(); i++)
    if (groups_[i]->state.matches()) {
      if (i) std::rotate(groups_.begin(), groups_.begin() + i, groups_.begin() + i + 1);
      return groups_[0];
    }
  return nullptr;
}

size_t Entry::traceCount() const {
  size_t count = 0;
  for (const auto& group : groups_) count += group->traces.size();
  return count;
}

namespace {

// A trace that can take over, with the objects that its guards met when the call began.
struct Candidate {
  std::shared_ptr<CompiledTrace> trace;
  std::vector<Ref> objects;
};

// Nothing if the guards do not hold, or if the trace has been dropped meanwhile.
std::optional<Candidate> candidate(TraceGroup& group, const std::shared_ptr<CompiledTrace>& trace,
                                   const guard::Call& call) {
  if (std::find(group.traces.begin(), group.traces.end(), trace) == group.traces.end())
    return std::nullopt;
  Candidate found{trace, {}};
  if (!group.guards.holds(trace->number, call, found.objects)) return std::nullopt;
  return found;
}

}  // namespace

// Runs the trace, and where it stops another one that took the other side of the branch. Guards are
// about what there was when the call began: after a change they have been asked before it.
Outcome Entry::runTrace(TraceGroup& group, std::shared_ptr<CompiledTrace>& trace,
                        const guard::Call& call, Objects fetched,
                        std::unique_ptr<replay::Suspended>& suspended) {
  std::vector<Candidate> candidates;
  if (trace->plan->stopsAfterCommit()) {
    // Copies, here and below: what goes after a check can be any code, and other threads add and
    // drop traces.
    std::vector<std::shared_ptr<CompiledTrace>> siblings = group.traces;
    for (const auto& sibling : siblings) {
      if (sibling == trace || !sibling->plan->isJoinedWith(*trace->plan)) continue;
      if (auto found = candidate(group, sibling, call)) candidates.push_back(std::move(*found));
    }
  }
  Outcome outcome = trace->plan->run(call, std::move(fetched), suspended);
  auto takeOver = [&]() -> std::optional<Candidate> {
    for (const Candidate& one : candidates)
      if (one.trace != trace && one.trace->plan->covers(*suspended)) return one;
    if (suspended->committed()) return std::nullopt;
    std::vector<std::shared_ptr<CompiledTrace>> siblings = group.traces;
    for (const auto& sibling : siblings) {
      if (sibling == trace || !sibling->plan->covers(*suspended)) continue;
      if (auto found = candidate(group, sibling, call)) return found;
    }
    return std::nullopt;
  };
  constexpr int kMostTries = 64;
  for (int tries = 0; outcome.kind == Outcome::Kind::Exited && suspended && tries < kMostTries;
       tries++) {
    std::optional<Candidate> next = takeOver();
    if (!next) break;
    // The one that stopped is named by what it hands over.
    std::shared_ptr<CompiledTrace> stopped = std::exchange(trace, next->trace);
    outcome = trace->plan->resume(call, std::move(next->objects), suspended);
  }
  return outcome;
}

bool Entry::replay(TraceGroup& group, size_t number, const guard::Call& call, Objects fetched,
                   PyObject** result, Timing& timing) {
  auto find = [&](size_t wanted) -> std::shared_ptr<CompiledTrace> {
    for (const auto& trace : group.traces)
      if (trace->number == wanted) return trace;
    return nullptr;
  };
  std::shared_ptr<CompiledTrace> trace = find(number);
  GP_CHECK(trace, "a matched trace exists");
  if (trace->native) trace->native->wanted();
  int64_t start = timing.mark();
  std::unique_ptr<replay::Suspended> suspended;
  Outcome outcome = runTrace(group, trace, call, std::move(fetched), suspended);
  timing.record.execute_ns = timing.mark() - start;
  timing.record.trace = static_cast<uint32_t>(trace->number);
  switch (outcome.kind) {
    case Outcome::Kind::Returned:
    case Outcome::Kind::Raised:
      counters().add(Stat::replays);
      timing.record.kind = CallRecord::Kind::Replayed;
      *result = outcome.result;
      return true;
    case Outcome::Kind::Retry: {
      // An operator raised and nothing had been changed: the program itself shows the user where.
      timing.record.kind = CallRecord::Kind::Exited;
      int64_t again = timing.mark();
      *result = original(call);
      timing.record.execute_ns += timing.mark() - again;
      return true;
    }
    case Outcome::Kind::Exited:
      counters().add(Stat::side_exits);
      lastMiss_ = exitText(*trace, outcome.event);
      timing.record.kind = CallRecord::Kind::Exited;
      if (!suspended || !suspended->committed()) return false;
      // It would stop there each time.
      if (suspended->programRan() && std::erase(group.traces, trace))
        group.guards.remove(trace->number);
      *result = goOn(call, std::move(suspended), timing);
      return true;
  }
  return false;
}

// Where a replay left its trace, in words.
std::string Entry::exitText(const CompiledTrace& trace, size_t event) {
  const ir::Trace& t = trace.recording->trace;
  const ir::Event& at = t.events[event];
  const char* what = at.kind == ir::EventKind::Opaque
                         ? "a call returned something else, raised or ran code of the program's own"
                     : at.kind == ir::EventKind::Op ? "an operator raised"
                                                    : "a tensor's value took another way";
  if (!at.site.valid()) return what;
  const ir::Site& site = t.sites[at.site.index()];
  return fmt::format("{} at {}:{}", what, site.file, site.line);
}

namespace {

// What a stopped replay has done, for the recorder.
class Handover final : public trace::Follow {
 public:
  explicit Handover(std::unique_ptr<replay::Suspended> suspended) : rerun_(std::move(suspended)) {}
  bool begin() { return rerun_.begin(); }
  aten::OpFeed& operators() override { return rerun_.operators(); }
  bool opaquePending() const override { return rerun_.opaquePending(); }
  bool programRan() const override { return rerun_.programRan(); }
  PyObject* takeOpaque() override { return rerun_.takeOpaque(); }
  PyObject* built(common::RecipeId id) const override { return rerun_.built(id); }

 private:
  replay::Rerun rerun_;
};

}  // namespace

// The replay has committed something and cannot go on: the program is run again up to there, with
// what the replay has done, and recorded further.
PyObject* Entry::goOn(const guard::Call& call, std::unique_ptr<replay::Suspended> suspended,
                      Timing& timing) {
  counters().add(Stat::reruns);
  Handover handover(std::move(suspended));
  if (!handover.begin()) return nullptr;
  bool full = traceCount() >= static_cast<size_t>(options_.maxTraces);
  PyObject* result = record(call, timing, &handover);
  if (full && !eager_) tooManyTraces();
  if (PyErr_Occurred()) Py_CLEAR(result);
  return result;
}

void Entry::dropDead() {
  // They go when the tables are in order again: what they hold may run code as it goes.
  std::vector<std::shared_ptr<CompiledTrace>> dropped;
  std::vector<std::shared_ptr<TraceGroup>> emptied;
  for (auto& group : groups_) {
    auto& traces = group->traces;
    for (size_t i = traces.size(); i-- > 0;)
      if (group->guards.isDead(traces[i]->number)) {
        group->guards.remove(traces[i]->number);
        dropped.push_back(std::move(traces[i]));
        traces.erase(traces.begin() + static_cast<ptrdiff_t>(i));
      }
    if (traces.empty()) emptied.push_back(group);
  }
  std::erase_if(groups_, [](const auto& group) { return group->traces.empty(); });
}

void Entry::noteMiss(TraceGroup* group, const guard::Call& call) {
  counters().add(Stat::guard_failures);
  if (!group) {
    lastMiss_ = "torch state: " + groups_[0]->state.difference();
  } else if (!group->traces.empty()) {
    const std::shared_ptr<CompiledTrace> last = group->traces.back();
    fillTexts(*last);
    const auto& traces = group->traces;
    const bool there = std::find(traces.begin(), traces.end(), last) != traces.end();
    auto failure = there ? group->guards.explain(last->number, call) : std::nullopt;
    lastMiss_ = failure ? fmt::format("{}: expected {}, found {}", failure->path, failure->expected,
                                      failure->found)
                        : "unknown";
    if (failure && common::logs(Channel::Recompiles))
      common::log(Channel::Recompiles, "{}: {} ({}:{})", name_, lastMiss_, failure->site.file,
                  failure->site.line);
  }
  counters().addRecompile(lastMiss_);
  dropDead();
  if (traceCount() >= static_cast<size_t>(options_.maxTraces)) tooManyTraces();
}

PyObject* Entry::record(const guard::Call& call, Timing& timing, trace::Follow* follow) {
  struct Flag {
    explicit Flag(bool& flag) : flag_(flag) {
      flag_ = true;
      recordingHere = true;
    }
    ~Flag() {
      flag_ = false;
      recordingHere = false;
    }
    bool& flag_;
  };
  // What a replay has done before it stopped stays.
  bool undoable = fullgraph_ && !follow;
  trace::Recorder recorder(name_,
                           {static_cast<size_t>(options_.maxEvents), options_.audit, undoable});
  if (follow) recorder.follow(*follow);
  Ref result;
  int64_t start = now();
  {
    Flag flag(recording_);
    result = Ref::steal(recorder.record(call.callee, call.args, call.positional, call.kwnames));
  }
  int64_t recorded = now();
  double seconds = static_cast<double>(recorded - start) * 1e-9;
  addPhaseTime("capture", seconds);
  timing.record.execute_ns += recorded - start;
  timing.record.kind = CallRecord::Kind::Recorded;
  if (recorder.refusal()) {
    timing.record.kind = CallRecord::Kind::Eager;
    timing.record.reason = common::info(recorder.refusal()->reason).id;
    if (undoable && !mayPass(recorder.refusal()->reason)) recorder.undo();
    return refused(*recorder.refusal(), std::move(result));
  }
  // Runs that went on from a replay are kept while there is room; other threads may have filled it.
  if (traceCount() >= static_cast<size_t>(options_.maxTraces)) return result.release();
  if (fullgraph_ && !recorder.breaks().empty()) {
    counters().addBreak(recorder.breaks()[0].reason);
    if (undoable) recorder.undo();
    return broken(recorder.breaks()[0]);
  }
  PyObject* installed = nullptr;
  try {
    installed = install(recorder.take(), call, seconds, recorder.breaks(), result);
  } catch (const std::exception& error) {
    Refusal refusal;
    refusal.reason = Reason::internal_error;
    refusal.detail = error.what();
    counters().addRefusal(refusal.reason);
    goEager(std::move(refusal));
    installed = PyErr_Occurred() ? nullptr : result.release();
  }
  if (!installed && undoable) recorder.undo();
  timing.record.record_ns += now() - recorded;
  return installed;
}

PyObject* Entry::broken(const Refusal& refusal) const {
  PyErr_Clear();  // of the program that was stopped there
  PyErr_Format(PyExc_RuntimeError, "glowplug: fullgraph=True, but the graph of %s breaks: %s",
               name_.c_str(), refusal.textWithHint().c_str());
  return nullptr;
}

PyObject* Entry::refused(const Refusal& refusal, Ref result) {
  common::log(Channel::Breaks, "{}: not recorded: {}", name_, refusal.text());
  bool breaks = fullgraph_ && !mayPass(refusal.reason);
  // Once more the same is no news. At a known place the details may differ (counts, types).
  const bool same = lastRefusal_ && lastRefusal_->reason == refusal.reason &&
                    lastRefusal_->file == refusal.file && lastRefusal_->line == refusal.line &&
                    (lastRefusal_->detail == refusal.detail || !refusal.file.empty());
  const bool known = same && !breaks;
  if (!known) counters().addRefusal(refusal.reason);
  if (!result && !breaks) return nullptr;  // the program raised: its exception stands
  const bool counts = refusal.reason == Reason::opaque_call ||
                      refusal.reason == Reason::data_value || refusal.reason == Reason::disabled;
  if (counts && !known) counters().addBreak(refusal.reason);
  if (breaks) return broken(refusal);
  failedRecordings_++;
  // What a program does at its first call (imports, caches, lazy layers) it may never do again:
  // only what comes twice is for good.
  const size_t most = mayPass(refusal.reason) ? static_cast<size_t>(options_.maxTraces)
                                              : std::min<size_t>(kMostRefusals, options_.maxTraces);
  lastRefusal_ = refusal;
  if ((known && !mayPass(refusal.reason)) || failedRecordings_ >= most) goEager(refusal);
  return PyErr_Occurred() ? nullptr : result.release();
}

// Nothing, if the recording has no more branches on values than it may have.
std::optional<Refusal> Entry::tooManyForks(const ir::Trace& trace) const {
  int64_t forks = 0;
  for (const ir::Event& event : trace.events) {
    if (event.kind != ir::EventKind::Fork || forks++ < options_.maxForks) continue;
    Refusal refusal;
    refusal.reason = Reason::too_many_forks;
    if (event.site.valid()) {
      refusal.file = trace.sites[event.site.index()].file;
      refusal.line = trace.sites[event.site.index()].line;
    }
    forks = std::count_if(trace.events.begin(), trace.events.end(),
                          [](const ir::Event& each) { return each.kind == ir::EventKind::Fork; });
    refusal.detail = fmt::format("{} in one call; max_forks is {}", forks, options_.maxForks);
    return refusal;
  }
  return std::nullopt;
}

PyObject* Entry::install(const std::shared_ptr<trace::Recording>& recording,
                         const guard::Call& call, double seconds, std::vector<Refusal> breaks,
                         Ref result) {
  int64_t start = now();
  size_t event = 0;
  if (const char* reason = replay::Plan::refusal(recording->trace, &event, &recording->objects)) {
    Refusal refusal;
    refusal.reason = common::reasonNamed(reason).value_or(Reason::internal_error);
    common::SiteId site = recording->trace.events[event].site;
    if (site.valid()) {
      refusal.file = recording->trace.sites[site.index()].file;
      refusal.line = recording->trace.sites[site.index()].line;
    }
    return refused(refusal, std::move(result));
  }
  if (std::optional<Refusal> refusal = tooManyForks(recording->trace))
    return refused(*refusal, std::move(result));
  auto compiled = std::make_shared<CompiledTrace>();
  compiled->recording = recording;
  compiled->recordSeconds = seconds;
  compiled->breaks = std::move(breaks);
  compiled->plan =
      std::make_unique<replay::Plan>(recording->trace, recording->objects, recording->ops);
  std::shared_ptr<TraceGroup> group = groupOfThread();
  if (!group) {
    group = std::make_shared<TraceGroup>();
    group->state = std::move(*recording->state);
    groups_.insert(groups_.begin(), group);
  }
  compiled->number = group->guards.add(recording->trace, recording->objects, recording->ops,
                                       compiled->plan->wanted(), call);
  for (const auto& other : group->traces) {
    if (!replay::Plan::join(*other->plan, *compiled->plan)) continue;
    // Both are sides of a branch now.
    if (!std::exchange(other->fork, true)) counters().add(Stat::forks);
    compiled->fork = true;
    compileNative(*other, call);  // it may have to keep more than it did
  }
  group->traces.push_back(compiled);
  logTrace(name_, *compiled);
  addPhaseTime("build", static_cast<double>(now() - start) * 1e-9);
  counters().add(Stat::recordings);
  counters().add(Stat::unique_graphs, graphCount(*compiled));
  for (const auto& segment : compiled->plan->segments())
    counters().add(Stat::ops_recorded, segment.operators);
  if (compiled->fork) counters().add(Stat::forks);
  for (const Refusal& broken : compiled->breaks) counters().addBreak(broken.reason);
  compileNative(*compiled, call);
  if (backend_.lower) {
    Objects fetched;
    group->guards.holds(compiled->number, call, fetched);
    lowerSegments(*compiled, fetched);
    if (PyErr_Occurred()) {
      // Unless another thread has dropped it while the backend ran.
      if (std::erase(group->traces, compiled)) group->guards.remove(compiled->number);
      return nullptr;
    }
  }
  return result.release();
}

// In the background; until it is done the plan runs as it is.
void Entry::compileNative(CompiledTrace& trace, const guard::Call& call) {
  if (!makesNative()) return;
  int64_t start = now();
  Objects fetched;
  const bool known = groupOfThread()->guards.holds(trace.number, call, fetched);
  const auto tensorOf = [&](common::ValueId value) -> PyObject* {
    const int32_t index = trace.plan->inputIndex(value);
    return known && index >= 0 ? fetched[static_cast<size_t>(index)].get() : nullptr;
  };
  if (!packedWeights_) {
    packedWeights_ = std::make_shared<aten::PackedWeights>(
        static_cast<uint64_t>(options_.packedWeightsMb) << 20);
  }
  const auto job = std::make_shared<NativeJob>(*trace.recording, *trace.plan, name_, options_,
                                               tensorOf, trace.native.get(), packedWeights_);
  trace.native = job;
  // The next call is to begin with what needs no kernels. For long traces nobody waits.
  if (trace.recording->trace.events.size() <= kMostEventsToPrepare) job->prepare();
  enqueue(job);
  addPhaseTime("graph", static_cast<double>(now() - start) * 1e-9);
}

void Entry::lowerSegments(CompiledTrace& trace, const Objects& fetched) {
  int64_t start = now();
  for (size_t i = 0; i < trace.plan->segments().size(); i++) {
    if (!trace.plan->canLower(i)) {
      common::log(Channel::Graphs,
                  "{}: segment {} stays in tier 1: torch's state changes inside it", name_, i);
      continue;
    }
    Ref graph = Ref::steal(graphOf(trace, i, fetched));
    if (!graph) return;
    Ref callable = Ref::steal(PyObject_CallOneArg(backend_.lower.get(), graph.get()));
    if (!callable) return;
    trace.plan->setBackend(i, callable.get());
  }
  addPhaseTime("lower", static_cast<double>(now() - start) * 1e-9);
}

void Entry::reset() {
  // Traces may hold the last reference to something whose destructor calls back in here.
  std::vector<std::shared_ptr<TraceGroup>> groups;
  groups.swap(groups_);
  eager_.reset();
  lastRefusal_.reset();
  failedRecordings_ = 0;
  lastMiss_.clear();
  std::shared_ptr<CalleeEntries> callees = std::move(callees_);
}

int Entry::traverse(visitproc visit, void* arg) const {
  Py_VISIT(callable_.get());
  Py_VISIT(backend_.lower.get());
  for (const auto& group : groups_)
    for (const auto& trace : group->traces) {
      if (int status = trace->plan->traverse(visit, arg)) return status;
    }
  if (callees_) return callees_->traverse(visit, arg);
  return 0;
}

void Entry::clear() {
  reset();
  callable_ = Ref();
  backend_.lower = Ref();
}

}  // namespace glowplug::engine
