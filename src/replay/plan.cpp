// Making a trace executable: what is needed when, which operators form segments, which steps run.

#include "replay/plan.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::SourceId;
using common::ValueId;
using cpython::Ref;
using ir::Event;
using ir::EventKind;
using ir::Operand;

namespace {

std::atomic<uint64_t> nextSerial{1};

bool runsInProgram(const Event& event) {
  return event.kind == EventKind::Op || event.kind == EventKind::State ||
         event.kind == EventKind::Input;
}

}  // namespace

void visitValues(const Operand& operand, const std::function<void(ValueId)>& visitor) {
  if (operand.kind == Operand::Kind::Value) visitor(operand.value);
  for (const Operand& item : operand.items) visitValues(item, visitor);
}

bool givesScalar(const ir::Trace& trace, const Event& event) {
  return event.kind == EventKind::Op &&
         std::any_of(event.results.begin(), event.results.end(), [&](ValueId id) {
           return id.valid() && trace.values[id.index()].kind == ir::ValueKind::Scalar;
         });
}

std::vector<int64_t> makers(const ir::Trace& trace) {
  std::vector<int64_t> madeAt(trace.values.size(), -1);
  for (size_t e = 0; e < trace.events.size(); e++) {
    if (trace.events[e].kind == EventKind::Input) continue;
    for (ValueId id : trace.events[e].results)
      if (id.valid() && madeAt[id.index()] < 0 && !trace.values[id.index()].source.valid())
        madeAt[id.index()] = static_cast<int64_t>(e);
  }
  return madeAt;
}

// An effect is committed by the first opaque call after it that comes after everything it needs. A
// recipe tells what an object is at the end of the recording, so it may need values made later;
// then a call that could see the effect is refused (Plan::refusal), and output does not wait for
// it.
CommitPoints::CommitPoints(const ir::Trace& trace, const std::vector<int64_t>& madeAt) {
  size_t open = 0;
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& event = trace.events[e];
    if (event.kind == EventKind::Effect) {
      events.push_back(e);
      latest.push_back(-1);
      visitRecipes(trace, event.recipes, [&](const ir::Recipe& recipe) {
        if (recipe.value.valid())
          latest.back() = std::max(latest.back(), madeAt[recipe.value.index()]);
      });
    } else if (ir::callsOut(event)) {
      while (open < events.size() && latest[open] < static_cast<int64_t>(e)) {
        committedAt.push_back(e);
        open++;
      }
      countAt[e] = open;
    }
  }
  committedAt.resize(events.size(), trace.events.empty() ? 0 : trace.events.size() - 1);
}

Plan::Plan(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops)
    : impl_(std::make_unique<Impl>(trace, objects, ops)) {}
Plan::~Plan() = default;

Plan::Impl::Impl(const ir::Trace& trace, const cpython::ObjectTable& objects,
                 const aten::OpTable& ops)
    : trace(trace),
      objects(objects),
      ops(ops),
      serial(nextSerial++),
      madeAt(makers(trace)),
      commits(trace, madeAt),
      valueCapacity(trace.values.size()) {
  auto commit = std::find_if(trace.events.begin(), trace.events.end(), ir::cannotBeTakenBack);
  if (commit != trace.events.end())
    firstCommit = static_cast<size_t>(commit - trace.events.begin());
  stopsAfterCommit = std::any_of(commit, trace.events.end(), ir::mayStop);
  collectUses();
  findLateChecks();
  collectLives();
  findSegments();
  refresh(std::vector<Ref>(segments.size()), nullptr);
}

Plan::Impl::~Impl() {
  for (const Joined& join : joined)
    std::erase_if(join.other->joined, [this](const Joined& back) { return back.other == this; });
}

void Plan::Impl::want(SourceId source) {
  bool late = guard::isLate(trace, source);
  int32_t& index = (late ? lateIndex : wantedIndex)[source.index()];
  if (index >= 0) return;
  std::vector<SourceId>& list = late ? lateWanted : wanted;
  index = static_cast<int32_t>(list.size());
  list.push_back(source);
}

void Plan::Impl::addInput(const Event& event) {
  ValueId value = event.results[0];
  SourceId source = trace.values[value.index()].source;
  want(source);
  if (wantedIndex[source.index()] < 0) return;
  inputIndex[value.index()] = wantedIndex[source.index()];
  inputs.emplace_back(value, static_cast<size_t>(inputIndex[value.index()]));
}

// A replay that stops after it committed something goes on as the program itself, which needs
// whatever is alive there. The last such point stands for all of a value's: what is asked of its
// uses is whether one is late enough, or outside of a segment.
void Plan::Impl::collectLives() {
  diesAt.assign(trace.values.size(), 0);
  if (firstCommit == SIZE_MAX) return;
  constexpr size_t kDead = SIZE_MAX;
  std::vector<size_t> aliveSince(trace.values.size(), kDead);
  size_t lastStop = 0;
  const auto end = [&](size_t v, size_t at) {
    if (aliveSince[v] != kDead && lastStop > aliveSince[v])
      uses[v].push_back(static_cast<uint32_t>(lastStop));
    aliveSince[v] = kDead;
    diesAt[v] = at;
  };
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& event = trace.events[e];
    for (int64_t id : event.dead) end(static_cast<size_t>(id), e);
    bool stop = ir::isLateGuard(event) || lateChecks.count(e) > 0;
    if (stop && e >= firstCommit) lastStop = e;
    for (ValueId id : event.results)
      if (id.valid() && aliveSince[id.index()] == kDead) aliveSince[id.index()] = e;
  }
  for (size_t v = 0; v < aliveSince.size(); v++)
    if (aliveSince[v] != kDead) end(v, trace.events.size());
  for (auto& list : uses) std::sort(list.begin(), list.end());
}

void Plan::Impl::findGradOwners() {
  if (std::none_of(trace.events.begin(), trace.events.end(), ir::mayChangeAnything)) return;
  for (const ir::Source& source : trace.sources) {
    if (source.step != ir::StepKind::TensorGrad || guard::isLate(trace, source.parent)) continue;
    want(source.parent);
    gradOwners.push_back(static_cast<size_t>(wantedIndex[source.parent.index()]));
  }
}

void Plan::Impl::collectUses() {
  uses.resize(trace.values.size());
  wantedIndex.assign(trace.sources.size(), -1);
  lateIndex.assign(trace.sources.size(), -1);
  inputIndex.assign(trace.values.size(), -1);
  std::unordered_set<uint32_t> named;
  auto name = [&](common::ObjectId id) {
    if (id.valid() && objects.isWeak(id) && named.insert(id.value).second)
      this->named.push_back(id);
  };
  size_t effect = 0;
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& event = trace.events[e];
    auto use = [&](ValueId id, size_t at) {
      uses[id.index()].push_back(static_cast<uint32_t>(at));
    };
    for (const Operand& operand : event.operands)
      visitValues(operand, [&](ValueId id) { use(id, e); });
    if (ir::isLateGuard(event)) use(event.value, e);
    if (event.kind == EventKind::Input) addInput(event);
    hasState |= event.kind == EventKind::State || event.keeps;
    hasRandom |= event.random;
    // A value in an effect lives until the effect is committed.
    size_t at = event.kind == EventKind::Effect ? commits.committedAt[effect++] : e;
    name(event.keywords);
    name(event.expected);
    visitRecipes(trace, event.recipes, [&](const ir::Recipe& recipe) {
      if (recipe.value.valid()) use(recipe.value, at);
      if (recipe.source.valid()) want(recipe.source);
      name(recipe.object);
    });
  }
  findGradOwners();
  for (const ir::Guard& guard : trace.guards)
    if (guard.since > 0 && guard.source == guard.other) want(guard.source);
  for (auto& list : uses) std::sort(list.begin(), list.end());
}

std::vector<std::vector<ValueId>> Plan::Impl::lastUses() const {
  std::vector<std::vector<ValueId>> result(trace.events.size());
  for (size_t v = 0; v < trace.values.size(); v++) {
    int64_t last = uses[v].empty() ? madeAt[v] : std::max<int64_t>(uses[v].back(), madeAt[v]);
    if (last >= 0 && diesAt[v] > firstCommit)
      last = std::max(last, static_cast<int64_t>(diesAt[v]) - 1);
    // A plan that takes over at a late guard may need more of what was made before.
    for (const Joined& join : joined) {
      auto event = static_cast<int64_t>(join.event);
      const auto& others = join.other->uses;
      bool needed = madeAt[v] < event && v < others.size() && !others[v].empty() &&
                    others[v].back() >= join.event;
      if (needed) last = std::max(last, event);
    }
    if (last >= 0 && last + 1 < static_cast<int64_t>(trace.events.size()))
      result[static_cast<size_t>(last)].push_back(ValueId(v));
  }
  return result;
}

void Plan::Impl::findSegments() {
  segmentOf.assign(trace.events.size(), -1);
  bool open = false;
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& event = trace.events[e];
    if (ir::isLateGuard(event) || ir::endsSegment(event)) open = false;
    if (event.kind != EventKind::Op) continue;
    if (!open) segments.push_back({e, e + 1, {}, {}, 0});
    open = true;
    segments.back().end = e + 1;
    if (!givesScalar(trace, event)) segments.back().operators++;
  }
  for (size_t s = 0; s < segments.size(); s++) {
    for (size_t e = segments[s].begin; e < segments[s].end; e++) segmentOf[e] = static_cast<int>(s);
    findEdges(segments[s]);
  }
}

// Inputs and outputs, by who uses what. A number for Python is computed outside the segment.
void Plan::Impl::findEdges(Segment& segment) const {
  std::unordered_set<uint32_t> seen, made;
  auto inside = [&](size_t e) {
    return e >= segment.begin && e < segment.end && trace.events[e].kind == EventKind::Op &&
           !givesScalar(trace, trace.events[e]);
  };
  std::vector<ValueId> results;
  for (size_t e = segment.begin; e < segment.end; e++) {
    if (!inside(e)) continue;
    for (const Operand& operand : trace.events[e].operands)
      visitValues(operand, [&](ValueId id) {
        if (!made.count(id.value) && seen.insert(id.value).second) segment.inputs.push_back(id);
      });
    for (ValueId id : trace.events[e].results)
      if (id.valid() && !seen.count(id.value) && made.insert(id.value).second)
        results.push_back(id);
  }
  for (ValueId id : results) {
    const auto& users = uses[id.index()];
    if (!std::all_of(users.begin(), users.end(), inside)) segment.outputs.push_back(id);
  }
  std::sort(segment.outputs.begin(), segment.outputs.end());
}

// The steps of a segment that a backend runs; returns the event after it. Numbers for Python and
// output come after the backend's call, which is when their tensors exist.
size_t Plan::Impl::addSegmentSteps(std::vector<Step>& steps, size_t index) const {
  const Segment& segment = segments[index];
  Step backend{Step::Kind::Segment, false, static_cast<uint32_t>(index), segment.begin,
               segment.end};
  for (size_t e = segment.begin; e < segment.end; e++)
    backend.writesInput |= trace.events[e].writesInput;
  steps.push_back(backend);
  for (size_t e = segment.begin; e < segment.end; e++) {
    if (givesScalar(trace, trace.events[e]))
      steps.push_back({Step::Kind::Operators, false, 0, e, e + 1});
    if (trace.events[e].kind == EventKind::Opaque)
      steps.push_back({Step::Kind::Opaque, false, 0, e, e + 1});
  }
  steps.push_back({Step::Kind::Drop, false, 0, segment.begin, segment.end});
  return segment.end;
}

std::vector<Step> Plan::Impl::steps(const std::vector<Ref>& backends) const {
  std::vector<Step> result;
  for (size_t e = 0; e < trace.events.size();) {
    const Event& event = trace.events[e];
    int segment = segmentOf[e];
    if (segment >= 0 && backends[static_cast<size_t>(segment)]) {
      e = addSegmentSteps(result, static_cast<size_t>(segment));
      continue;
    }
    if (runsInProgram(event)) {
      bool longer =
          !result.empty() && result.back().kind == Step::Kind::Operators && result.back().end == e;
      if (!longer) result.push_back({Step::Kind::Operators, false, 0, e, e});
      result.back().end = e + 1;
      result.back().writesInput |= event.writesInput;
    } else if (ir::isLateGuard(event)) {
      result.push_back({Step::Kind::Guard, false, 0, e, e + 1});
    } else if (event.kind == EventKind::Opaque) {
      result.push_back({Step::Kind::Opaque, false, 0, e, e + 1});
    } else if (event.kind == EventKind::Return) {
      result.push_back({Step::Kind::Return, false, 0, e, e + 1});
    }
    e++;
  }
  return result;
}

bool Plan::Impl::runsInTier1(size_t event, const std::vector<Ref>& backends) const {
  int segment = segmentOf[event];
  return segment < 0 || !backends[static_cast<size_t>(segment)] ||
         trace.events[event].kind != EventKind::Op || givesScalar(trace, trace.events[event]);
}

// Makes the schedule anew, after a backend or a joined plan has been added.
void Plan::Impl::refresh(std::vector<Ref> backends,
                         std::shared_ptr<const aten::NativeCode> native) {
  auto made = std::make_shared<Schedule>();
  made->drops = lastUses();
  bool same = schedule && schedule->drops == made->drops && schedule->native == native;
  made->program = same ? schedule->program
                       : std::make_shared<const aten::OpProgram>(trace, ops, made->drops, native);
  made->native = std::move(native);
  made->steps = steps(backends);
  for (const auto& [value, index] : inputs) {
    const auto& users = uses[value.index()];
    bool needed = std::any_of(users.begin(), users.end(),
                              [&](uint32_t e) { return runsInTier1(e, backends); });
    if (needed) made->bound.emplace_back(value, index);
  }
  made->backends = std::move(backends);
  schedule = std::move(made);
}

const std::vector<SourceId>& Plan::wanted() const { return impl_->wanted; }
const std::vector<Segment>& Plan::segments() const { return impl_->segments; }

void Plan::setBackend(size_t index, PyObject* callable) {
  std::vector<Ref> backends = impl_->schedule->backends;
  backends[index] = Ref::borrow(callable);
  // Dropped last: the old callable may be the user's.
  std::shared_ptr<const Schedule> old = impl_->schedule;
  impl_->refresh(std::move(backends), old->native);
}

// Machine code has come in since the last run.
void Plan::Impl::takeNative() {
  std::shared_ptr<const Schedule> old = schedule;
  refresh(old->backends, nativeSlot->take());
}

const std::shared_ptr<NativeSlot>& Plan::nativeSlot() const { return impl_->nativeSlot; }
int32_t Plan::inputIndex(ValueId value) const { return impl_->inputIndex[value.index()]; }
size_t Plan::firstCommit() const { return impl_->firstCommit; }

std::vector<bool> Plan::escapes(size_t index, size_t end) const {
  const Segment& segment = impl_->segments[index];
  const ir::Trace& trace = impl_->trace;
  std::vector<bool> result(trace.values.size(), false);
  for (size_t v = 0; v < result.size(); v++) {
    for (uint32_t e : impl_->uses[v]) {
      bool inside = e >= segment.begin && e < end && trace.events[e].kind == EventKind::Op;
      result[v] = result[v] || !inside;
    }
    for (const Impl::Joined& join : impl_->joined) {
      const auto& others = join.other->uses;
      result[v] =
          result[v] || (v < others.size() && !others[v].empty() && others[v].back() >= join.event);
    }
  }
  return result;
}

int Plan::traverse(visitproc visit, void* arg) const {
  for (const Ref& backend : impl_->schedule->backends) Py_VISIT(backend.get());
  return 0;
}

}  // namespace glowplug::replay
