// Plans that share a beginning: where they part, and how one goes on for the other.
//
// While nothing has been committed, a plan that takes over can also start again: that is what it
// does when a value it needs is gone, because a backend computed it inside or because it was
// dropped before the plans were joined.

#include <algorithm>

#include "cpython/constant.h"
#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::SourceId;
using common::ValueId;
using ir::Event;
using ir::EventKind;
using ir::Operand;

namespace {

bool sameObject(PyObject* a, PyObject* b) { return a && b && cpython::constantsEqual(a, b); }

bool sameSource(SourceId a, SourceId b, const Plan::Impl& first, const Plan::Impl& second) {
  while (a.valid() && b.valid()) {
    const ir::Source& left = first.trace.sources[a.index()];
    const ir::Source& right = second.trace.sources[b.index()];
    if (left.step != right.step || left.index != right.index ||
        left.object.valid() != right.object.valid())
      return false;
    if (left.object.valid() &&
        !sameObject(first.objects.get(left.object), second.objects.get(right.object)))
      return false;
    a = left.parent;
    b = right.parent;
  }
  return a.valid() == b.valid();
}

bool sameOperand(const Operand& a, const Operand& b, const Plan::Impl& first,
                 const Plan::Impl& second) {
  if (a.kind != b.kind || a.value != b.value || a.items.size() != b.items.size()) return false;
  if (a.kind == Operand::Kind::Const &&
      !aten::OpTable::sameConstant(first.ops, a.constant, second.ops, b.constant))
    return false;
  for (size_t i = 0; i < a.items.size(); i++)
    if (!sameOperand(a.items[i], b.items[i], first, second)) return false;
  return true;
}

bool sameOperator(const Event& a, const Event& b, const Plan::Impl& first,
                  const Plan::Impl& second) {
  return a.resultLengths == b.resultLengths &&
         first.ops.operatorName(a.op) == second.ops.operatorName(b.op) &&
         std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(),
                    [&](const Operand& left, const Operand& right) {
                      return sameOperand(left, right, first, second);
                    });
}

bool sameExpectation(const Event& a, const Event& b, const Plan::Impl& first,
                     const Plan::Impl& second) {
  if (a.kind == EventKind::Sizes) return a.sizes == b.sizes;
  return sameObject(first.objects.get(a.expected), second.objects.get(b.expected));
}

bool sameRecipe(common::RecipeId a, common::RecipeId b, const Plan::Impl& first,
                const Plan::Impl& second, std::vector<bool>& seen) {
  if (a.valid() != b.valid()) return false;
  // What two recordings have built for their calls by then has the same numbers in both.
  if (!a.valid() || seen[a.index()]) return a == b;
  if (a != b) return false;
  seen[a.index()] = true;
  const ir::Recipe& left = first.trace.recipes[a.index()];
  const ir::Recipe& right = second.trace.recipes[b.index()];
  if (left.kind != right.kind || left.value != right.value ||
      left.children.size() != right.children.size() ||
      left.object.valid() != right.object.valid() ||
      !sameSource(left.source, right.source, first, second))
    return false;
  if (left.object.valid() &&
      !sameObject(first.objects.get(left.object), second.objects.get(right.object)))
    return false;
  for (size_t i = 0; i < left.children.size(); i++)
    if (!sameRecipe(left.children[i], right.children[i], first, second, seen)) return false;
  return true;
}

bool sameCall(const Event& a, const Event& b, const Plan::Impl& first, const Plan::Impl& second) {
  if (a.logOnly != b.logOnly || a.known != b.known || a.pure != b.pure || a.keeps != b.keeps ||
      a.keywords.valid() != b.keywords.valid() || a.recipes.size() != b.recipes.size())
    return false;
  if (a.keywords.valid() &&
      !sameObject(first.objects.get(a.keywords), second.objects.get(b.keywords)))
    return false;
  std::vector<bool> seen(first.trace.recipes.size(), false);
  for (size_t i = 0; i < a.recipes.size(); i++)
    if (!sameRecipe(a.recipes[i], b.recipes[i], first, second, seen)) return false;
  return true;
}

// What the plans expect of a call's result, in an order that does not matter.
bool sameCheck(size_t event, const Plan::Impl& first, const Plan::Impl& second) {
  auto expectations = [event](const Plan::Impl& plan) {
    std::vector<const ir::Guard*> guards;
    for (const ir::Guard& guard : plan.trace.guards)
      if (guard::isLate(plan.trace, guard.source) && plan.madeBy(guard.source) == event)
        guards.push_back(&guard);
    return guards;
  };
  auto left = expectations(first), right = expectations(second);
  return left.size() == right.size() &&
         std::equal(
             left.begin(), left.end(), right.begin(), [&](const ir::Guard* a, const ir::Guard* b) {
               return a->kind == b->kind && a->number == b->number &&
                      a->object.valid() == b->object.valid() &&
                      sameSource(a->source, b->source, first, second) &&
                      (!a->object.valid() ||
                       sameObject(first.objects.get(a->object), second.objects.get(b->object)));
             });
}

// The same up to what late guards expect. Each plan commits effects of its own, when it ends.
bool sameEvent(const Event& a, const Event& b, const Plan::Impl& first, const Plan::Impl& second) {
  if (a.kind != b.kind || a.results != b.results || a.value != b.value) return false;
  switch (a.kind) {
    case EventKind::Input: {
      size_t value = a.results[0].index();
      return sameSource(first.trace.values[value].source, second.trace.values[value].source, first,
                        second);
    }
    case EventKind::Op:
      return sameOperator(a, b, first, second);
    case EventKind::State:
      return a.state == b.state;
    case EventKind::Effect:
    case EventKind::Sizes:
    case EventKind::Fork:
      return true;
    case EventKind::Opaque:
      return sameCall(a, b, first, second);
    case EventKind::Return:
      return false;
  }
  return false;
}

}  // namespace

bool Plan::join(Plan& first, Plan& second) {
  Impl& a = *first.impl_;
  Impl& b = *second.impl_;
  size_t count = std::min(a.trace.events.size(), b.trace.events.size());
  for (size_t e = 0; e < count; e++) {
    const Event& left = a.trace.events[e];
    const Event& right = b.trace.events[e];
    if (!sameEvent(left, right, a, b)) return false;
    if (left.kind == EventKind::Opaque
            ? sameCheck(e, a, b)
            : !ir::isLateGuard(left) || sameExpectation(left, right, a, b))
      continue;
    a.joined.push_back({&b, e});
    b.joined.push_back({&a, e});
    a.valueCapacity = b.valueCapacity = std::max(a.valueCapacity, b.valueCapacity);
    a.refresh(a.schedule->backends, a.schedule->native);
    b.refresh(b.schedule->backends, b.schedule->native);
    return true;
  }
  return false;
}

const Plan::Impl::Joined* Plan::Impl::joinedWith(uint64_t serial, size_t event) const {
  for (const Joined& join : joined)
    if (join.other->serial == serial && join.event == event) return &join;
  return nullptr;
}

bool Plan::stopsAfterCommit() const { return impl_->stopsAfterCommit; }

bool Plan::isJoinedWith(const Plan& other) const {
  return std::any_of(impl_->joined.begin(), impl_->joined.end(),
                     [&](const Impl::Joined& join) { return join.other == other.impl_.get(); });
}

bool Plan::covers(Suspended& suspended) const {
  Suspended::State& state = *suspended.state;
  Context& context = *state.context;
  if (state.error || context.programRan || !impl_->joinedWith(state.origin, state.event))
    return false;
  // A call that has committed something cannot start again.
  if (context.committed && !context.hasAllFor(*impl_, state.done)) return false;
  if (impl_->trace.events[state.event].kind == EventKind::Opaque) {
    // Asked when it takes over: a check leaves what it finds in the replay.
    std::vector<cpython::Ref> found;
    auto check = impl_->lateChecks.find(state.event);
    return check == impl_->lateChecks.end() || check->second.guards->hold(context.call, found);
  }
  return impl_->isMet(context, state.event);
}

bool Context::hasAllFor(const Plan::Impl& next, size_t event) const {
  if (capacity < next.trace.values.size()) return false;
  for (size_t v = 0; v < next.trace.values.size(); v++) {
    bool made = next.madeAt[v] >= 0 && next.madeAt[v] < static_cast<int64_t>(event);
    bool needed = made && !next.uses[v].empty() && next.uses[v].back() >= event;
    if (needed && !values.has(ValueId(v)) && !objects.count(static_cast<uint32_t>(v))) return false;
  }
  return true;
}

void Context::handOver(const Plan::Impl& next, std::shared_ptr<const Schedule> other,
                       size_t event) {
  for (size_t v = 0; v < next.trace.values.size(); v++) {
    bool made = next.madeAt[v] >= 0 && next.madeAt[v] < static_cast<int64_t>(event);
    if (made) continue;
    // The number may stand for something else in the plan that stopped: an input that comes later.
    values.clear(ValueId(v));
    objects.erase(static_cast<uint32_t>(v));
  }
  plan = &next;
  schedule = std::move(other);
  late.assign(next.lateWanted.size(), cpython::Ref());
  // What has been built for a call that may have kept it is the object that it is; the other
  // recipes may have other numbers in this plan.
  RecipeMemo kept(next.trace.recipes.size());
  for (const ir::Source& source : next.trace.sources)
    if (source.step == ir::StepKind::Built && static_cast<size_t>(source.index) < memo.size())
      kept[static_cast<size_t>(source.index)] = memo[static_cast<size_t>(source.index)];
  memo = std::move(kept);
}

Outcome Plan::resume(const guard::Call& call, std::vector<cpython::Ref> fetched,
                     std::unique_ptr<Suspended>& suspended) {
  std::unique_ptr<Suspended::State> state = std::move(suspended->state);
  suspended.reset();
  std::unique_ptr<Context> context = std::move(state->context);
  if (!context->hasAllFor(*impl_, state->done)) {
    context->takeBackRandom();
    context.reset();
    return run(call, std::move(fetched), suspended);
  }
  context->handOver(*impl_, impl_->schedule, state->done);
  bool bound = context->bind(std::move(fetched)) && impl_->passesAgain(*context, state->done);
  Outcome outcome{Outcome::Kind::Exited, nullptr, state->event};
  if (bound) outcome = impl_->runFrom(*context, state->done);
  if (!bound && !context->committed) {
    context->takeBackRandom();
    return outcome;
  }
  return impl_->suspend(std::move(context), outcome, suspended);
}

}  // namespace glowplug::replay
