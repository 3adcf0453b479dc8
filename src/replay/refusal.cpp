// What a plan cannot run, or a backend cannot be given, without telling other results than eager.

#include <algorithm>

#include "aten/saved_hooks.h"
#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::ValueId;
using ir::Event;
using ir::EventKind;

namespace {

bool reachesLater(const ir::Trace& trace, const std::vector<int64_t>& madeAt, const Event& event,
                  size_t at) {
  bool later = false;
  visitRecipes(trace, event.recipes, [&](const ir::Recipe& recipe) {
    later |= recipe.value.valid() && madeAt[recipe.value.index()] >= static_cast<int64_t>(at);
  });
  return later;
}

const char* refusalOfOpaque(const ir::Trace& trace, const std::vector<int64_t>& madeAt,
                            const CommitPoints& commits, size_t e) {
  const Event& event = trace.events[e];
  // Its arguments are described as they are when the recording ends.
  if (reachesLater(trace, madeAt, event, e)) return "opaque_call";
  if (event.logOnly || event.pure) return nullptr;
  auto before = std::lower_bound(commits.events.begin(), commits.events.end(), e);
  size_t effects = static_cast<size_t>(before - commits.events.begin());
  return commits.countAt.at(e) < effects ? "opaque_call" : nullptr;
}

}  // namespace

const char* Plan::refusal(const ir::Trace& trace, size_t* event,
                          const cpython::ObjectTable* objects) {
  std::vector<int64_t> madeAt = makers(trace);
  CommitPoints commits(trace, madeAt);
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& at = trace.events[e];
    *event = e;
    if (at.kind == EventKind::State && at.state.kind == ir::StateChange::Kind::Call)
      return "internal_error";
    if (at.kind == EventKind::Opaque) {
      if (const char* reason = refusalOfOpaque(trace, madeAt, commits, e)) return reason;
    }
    bool buildable = true;
    visitRecipes(trace, at.recipes, [&](const ir::Recipe& recipe) {
      buildable = buildable && (!objects || canBuild(trace, recipe, *objects));
    });
    if (!buildable) return "no_recipe";
  }
  return nullptr;
}

namespace {

struct Uses {
  bool scalar = false, varying = false, tensor = false;
};

Uses usesOf(const ir::Trace& trace, const Event& event) {
  Uses found;
  auto note = [&](ValueId id) {
    const ir::Value& value = trace.values[id.index()];
    found.scalar |= value.kind != ir::ValueKind::Tensor;
    found.varying |= value.dataDependent;
    found.tensor |= value.kind == ir::ValueKind::Tensor;
  };
  for (const ir::Operand& operand : event.operands) visitValues(operand, note);
  visitRecipes(trace, event.recipes, [&](const ir::Recipe& recipe) {
    if (recipe.value.valid()) note(recipe.value);
  });
  return found;
}

// Whether data decides how many tensors the operator gives, or whether one of them is its operand.
bool dataDecidesResults(const ir::Trace& trace, const Event& event, const Uses& uses,
                        const std::vector<int64_t>& madeAt, size_t e) {
  auto varies = [&](ValueId id) {
    return id.valid() && trace.values[id.index()].dataDependent &&
           madeAt[id.index()] < static_cast<int64_t>(e);
  };
  bool list = std::any_of(event.resultLengths.begin(), event.resultLengths.end(),
                          [](int32_t length) { return length >= 0; });
  return (list && uses.varying) || std::any_of(event.results.begin(), event.results.end(), varies);
}

}  // namespace

// Hooks for saved tensors are set where the event is reached.
bool Plan::Impl::savesThroughHooks(size_t event) const {
  int depth = 0;
  for (size_t e = 0; e < event; e++) {
    if (!trace.events[e].keeps) continue;
    const ir::Recipe& callee = trace.recipes[trace.events[e].recipes[0].index()];
    PyObject* function = callee.object.valid() ? objects.get(callee.object) : nullptr;
    if (function == aten::savedHooksPush()) depth++;
    if (function == aten::savedHooksPop()) depth--;
  }
  return depth > 0;
}

bool Plan::canLower(size_t index) const {
  const Segment& segment = impl_->segments[index];
  const ir::Trace& trace = impl_->trace;
  // An operator that gives a number besides tensors is run by the plan, after the segment.
  for (ValueId id : segment.inputs)
    if (impl_->madeAt[id.index()] >= static_cast<int64_t>(segment.begin)) return false;
  if (impl_->savesThroughHooks(segment.begin)) return false;
  bool looked = false;  // a tensor's contents go to Python, which the plan does after the segment
  for (size_t e = segment.begin; e < segment.end; e++) {
    const Event& event = trace.events[e];
    if (event.kind == EventKind::State) return false;
    Uses uses = usesOf(trace, event);
    if (event.kind == EventKind::Opaque) looked |= uses.tensor;
    if (event.kind != EventKind::Op) continue;
    if (givesScalar(trace, event)) {
      looked = true;
      continue;
    }
    if (impl_->ops.isOwn(event.op)) return false;
    bool writes = impl_->ops.mayWrite(event.op);
    if (uses.scalar || (looked && writes)) return false;
    if (!writes && dataDecidesResults(trace, event, uses, impl_->madeAt, e)) return false;
  }
  return segment.operators > 0;
}

}  // namespace glowplug::replay
