// What is checked after an opaque call: guards on what it returned, and, where it may have changed
// anything, whether everything else is still as the trace takes it to be.
//
// A trace has one set of guards for the whole call. They hold when the call begins, and after each
// unknown call they are asked again, apart from those about places that the program itself had
// written by then. The objects at the paths must be the same ones too, because the replay has them
// already.

#include <algorithm>

#include "cpython/constant.h"
#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::SourceId;
using cpython::Ref;
using ir::EffectKind;
using ir::Event;
using ir::EventKind;
using ir::PredicateKind;
using ir::StepKind;

namespace {

bool mayChangeAnything(const Event& event) {
  return event.kind == EventKind::Opaque && !event.logOnly && !event.known && !event.pure;
}

bool looksAtContents(PredicateKind kind) {
  switch (kind) {
    case PredicateKind::Missing:
    case PredicateKind::DictKeys:
    case PredicateKind::Length:
    case PredicateKind::SetEq:
    case PredicateKind::Contains:
    case PredicateKind::Lacks:
    case PredicateKind::Unset:
      return true;
    default:
      return false;
  }
}

// The step leads from a container or object to a part of it that can be written.
bool isPart(StepKind step) {
  switch (step) {
    case StepKind::DictItem:
    case StepKind::ListItem:
    case StepKind::DequeItem:
    case StepKind::SlotAttr:
    case StepKind::TypeAttr:
    case StepKind::CellContents:
    case StepKind::GetAttr:
      return true;
    default:
      return false;
  }
}

}  // namespace

// The event that gives what the path starts at.
size_t Plan::Impl::madeBy(SourceId source) const {
  while (trace.sources[source.index()].parent.valid())
    source = trace.sources[source.index()].parent;
  const ir::Source& root = trace.sources[source.index()];
  auto number = static_cast<size_t>(root.index);
  if (root.step == StepKind::Result) return static_cast<size_t>(madeAt[number]);
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& event = trace.events[e];
    if (event.kind != EventKind::Opaque && event.kind != EventKind::Effect) continue;
    bool builds = false;
    visitRecipes(trace, event.recipes,
                 [&](const ir::Recipe& recipe) { builds |= &recipe == &trace.recipes[number]; });
    if (!builds) continue;
    // An object that is stored by an effect exists from the next opaque call on.
    while (trace.events[e].kind != EventKind::Opaque && e + 1 < trace.events.size()) e++;
    return e;
  }
  return trace.events.size();
}

// The program has written before the event what the guard looks at.
bool Plan::Impl::isOverwritten(const ir::Guard& guard, size_t end) const {
  auto writes = [&](const Event& event, SourceId place, bool wholly) {
    size_t target = event.effect == EffectKind::CallMethod ? 1 : 0;
    if (target >= event.recipes.size()) return false;
    const ir::Recipe& object = trace.recipes[event.recipes[target].index()];
    SourceId written = object.source;
    const ir::Source& at = trace.sources[place.index()];
    SourceId owner = wholly ? place : at.parent;
    bool attribute = event.effect == EffectKind::SetAttr || event.effect == EffectKind::DelAttr;
    if (attribute && owner.valid() && trace.sources[owner.index()].step == StepKind::InstanceDict &&
        object.source.valid())
      owner = trace.sources[owner.index()].parent;
    bool same = object.source.valid() ? owner == written
                                      : owner.valid() && object.object.valid() &&
                                            trace.sources[owner.index()].object == object.object;
    if (!same || wholly || event.effect == EffectKind::CallMethod ||
        event.effect == EffectKind::SetCell)
      return same;
    const ir::Recipe& key = trace.recipes[event.recipes[1].index()];
    return !key.object.valid() || !at.object.valid() ||
           cpython::constantsEqual(objects.get(key.object), objects.get(at.object));
  };
  for (size_t e = 0; e < end; e++) {
    const Event& event = trace.events[e];
    if (event.kind != EventKind::Effect) continue;
    if (looksAtContents(guard.kind) && writes(event, guard.source, true)) return true;
    for (SourceId at = guard.source; at.valid(); at = trace.sources[at.index()].parent)
      if (isPart(trace.sources[at.index()].step) && writes(event, at, false)) return true;
  }
  return false;
}

void Plan::Impl::addLateCheck(size_t event) {
  bool again = mayChangeAnything(trace.events[event]);
  auto isKnownBy = [&](SourceId source) {
    if (!source.valid() || !guard::isLate(trace, source)) return true;
    size_t made = madeBy(source);
    return again ? made <= event : made == event;
  };
  LateCheck check;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < trace.guards.size(); i++) {
    const ir::Guard& guard = trace.guards[i];
    bool late = guard::isLate(trace, guard);
    if (!late && !again) continue;
    if (isKnownBy(guard.source) && isKnownBy(guard.other) && !isOverwritten(guard, event))
      chosen.push_back(i);
  }
  std::vector<SourceId> asked;
  for (SourceId source : lateWanted)
    if (madeBy(source) == event) check.taken.push_back(source);
  asked = check.taken;
  for (size_t i = 0; again && i < wanted.size(); i++) {
    ir::Guard place;
    place.source = wanted[i];
    if (isOverwritten(place, event)) continue;
    check.kept.push_back(i);
    asked.push_back(wanted[i]);
  }
  if (chosen.empty() && asked.empty()) return;
  check.guards = std::make_unique<guard::LateGuards>(trace, objects, ops, std::move(chosen), asked);
  lateChecks.emplace(event, std::move(check));
}

void Plan::Impl::findLateChecks() {
  for (size_t e = 0; e < trace.events.size(); e++)
    if (trace.events[e].kind == EventKind::Opaque) addLateCheck(e);
}

bool Plan::Impl::passes(Context& context, size_t event) const {
  auto found = lateChecks.find(event);
  if (found == lateChecks.end()) return true;
  const LateCheck& check = found->second;
  std::vector<Ref> fetched;
  if (!check.guards->hold(context.call, fetched)) return false;
  for (size_t i = 0; i < check.kept.size(); i++)
    if (fetched[check.taken.size() + i].get() != context.fetched[check.kept[i]].get()) return false;
  for (size_t i = 0; i < check.taken.size(); i++)
    context.late[static_cast<size_t>(lateIndex[check.taken[i].index()])] = std::move(fetched[i]);
  for (size_t v = 0; v < trace.values.size() && !check.taken.empty(); v++) {
    SourceId source = trace.values[v].source;
    if (!source.valid() || lateIndex[source.index()] < 0) continue;
    PyObject* tensor = context.late[static_cast<size_t>(lateIndex[source.index()])].get();
    if (tensor) context.values.setTensor(common::ValueId(v), tensor);
  }
  return true;
}

// For a replay that this plan takes over after the event.
bool Plan::Impl::passesAgain(Context& context, size_t event) const {
  for (size_t e = 0; e < event; e++)
    if (lateChecks.count(e) && !passes(context, e)) return false;
  return true;
}

}  // namespace glowplug::replay
