// What is checked after an opaque call: guards on what it returned, and, where it may have changed
// anything, all that the program reads after it and before the next such call. What it read before
// and looks at no more need not hold any longer.

#include <algorithm>

#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::SourceId;
using cpython::Ref;
using ir::Event;
using ir::EventKind;
using ir::StepKind;

// The opaque call after which the late path can be followed.
size_t Plan::Impl::madeBy(SourceId source) const {
  auto known = foundBy.find(source);
  if (known != foundBy.end()) return known->second;
  const ir::Source& at = trace.sources[source.index()];
  size_t event = at.parent.valid() ? (guard::isLate(trace, at.parent) ? madeBy(at.parent) : 0)
                 : at.step == StepKind::Result || at.step == StepKind::Built ? findRoot(at)
                                                                             : 0;
  if (at.since > 0) event = std::max(event, static_cast<size_t>(at.since) - 1);
  return foundBy[source] = event;
}

size_t Plan::Impl::findRoot(const ir::Source& root) const {
  auto number = static_cast<size_t>(root.index);
  if (root.step == StepKind::Result) return static_cast<size_t>(madeAt[number]);
  if (builtAt.empty()) findBuilt();
  return builtAt[number];
}

// By recipe: the first opaque call that builds it. An object that is stored by an effect exists
// from the next opaque call on.
void Plan::Impl::findBuilt() const {
  const size_t end = trace.events.size();
  builtAt.assign(trace.recipes.size(), end);
  std::vector<size_t> nextCall(end + 1, end == 0 ? 0 : end - 1);
  for (size_t e = end; e-- > 0;)
    nextCall[e] = trace.events[e].kind == EventKind::Opaque ? e : nextCall[e + 1];
  for (size_t e = 0; e < end; e++) {
    const Event& event = trace.events[e];
    if (event.kind != EventKind::Opaque && event.kind != EventKind::Effect) continue;
    visitRecipes(trace, event.recipes, [&](const ir::Recipe& recipe) {
      size_t& at = builtAt[static_cast<size_t>(&recipe - trace.recipes.data())];
      if (at == end) at = nextCall[e];
    });
  }
}

size_t Plan::Impl::askedAfter(const ir::Guard& guard) const {
  size_t event = guard.since > 0 ? static_cast<size_t>(guard.since) - 1 : 0;
  for (SourceId source : {guard.source, guard.other})
    if (source.valid() && guard::isLate(trace, source)) event = std::max(event, madeBy(source));
  return event;
}

void Plan::Impl::findLateChecks() {
  std::unordered_map<size_t, std::vector<size_t>> chosen;
  for (size_t i = 0; i < trace.guards.size(); i++) {
    const ir::Guard& guard = trace.guards[i];
    if (!guard::isLate(trace, guard)) continue;
    size_t event = askedAfter(guard);
    // The same path twice: the object there is to be the one that the replay has.
    if (guard.kind == ir::PredicateKind::SameAs && guard.source == guard.other)
      lateChecks[event].kept.push_back(guard.source);
    else
      chosen[event].push_back(i);
  }
  for (SourceId source : lateWanted) lateChecks[madeBy(source)].taken.push_back(source);
  for (const auto& [event, guards] : chosen) lateChecks[event];
  for (auto& [event, check] : lateChecks) {
    std::vector<SourceId> asked = check.taken;
    asked.insert(asked.end(), check.kept.begin(), check.kept.end());
    check.guards =
        std::make_unique<guard::LateGuards>(trace, objects, ops, std::move(chosen[event]), asked);
  }
}

bool Plan::Impl::passes(Context& context, size_t event) const {
  for (common::ValueId id : trace.events[event].results) {
    if (trace.events[event].keeps && context.values.has(id)) continue;
    PyObject* result = context.result(id);
    bool tensor = result && aten::isTensor(result);
    if (tensor != (trace.values[id.index()].kind == ir::ValueKind::Tensor)) return false;
  }
  auto found = lateChecks.find(event);
  if (found == lateChecks.end()) return true;
  const LateCheck& check = found->second;
  std::vector<Ref> fetched;
  if (!check.guards->hold(context.call, fetched)) return false;
  for (size_t i = 0; i < check.kept.size(); i++) {
    Ref had = Ref::steal(context.source(check.kept[i]));
    if (!had) return PyErr_Clear(), false;
    if (fetched[check.taken.size() + i].get() != had.get()) return false;
  }
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
