// Plans that share a beginning: where they part, and how one goes on for the other.
//
// Nothing is committed before a late guard, so a plan that takes over can also start again: that is
// what it does when a value it needs is gone, because a backend computed it inside or because it
// was dropped before the plans were joined.

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
    if (!isLateGuard(left) || sameExpectation(left, right, a, b)) continue;
    a.joined.push_back({&b, e});
    b.joined.push_back({&a, e});
    a.valueCapacity = b.valueCapacity = std::max(a.valueCapacity, b.valueCapacity);
    a.refresh(a.schedule->backends);
    b.refresh(b.schedule->backends);
    return true;
  }
  return false;
}

const Plan::Impl::Joined* Plan::Impl::joinedWith(uint64_t serial, size_t event) const {
  for (const Joined& join : joined)
    if (join.other->serial == serial && join.event == event) return &join;
  return nullptr;
}

bool Plan::covers(const Suspended& suspended) const {
  const Suspended::State& state = *suspended.state;
  return impl_->joinedWith(state.origin, state.event) &&
         impl_->isMet(*state.context, impl_->trace.events[state.event]);
}

bool Context::handOver(const Plan::Impl& next, std::shared_ptr<const Schedule> other,
                       size_t event) {
  if (capacity < next.trace.values.size()) return false;
  for (size_t v = 0; v < next.trace.values.size(); v++) {
    ValueId id(v);
    bool made = next.madeAt[v] >= 0 && next.madeAt[v] < static_cast<int64_t>(event);
    bool needed = made && !next.uses[v].empty() && next.uses[v].back() >= event;
    if (needed && !values.has(id)) return false;
    // The number may stand for something else in the plan that stopped: an input that comes later.
    if (!made) values.clear(id);
  }
  plan = &next;
  schedule = std::move(other);
  objects.clear();
  memo.assign(next.trace.recipes.size(), cpython::Ref());
  return true;
}

Outcome Plan::resume(PyObject* const* fetched, std::unique_ptr<Suspended>& suspended) {
  std::unique_ptr<Suspended::State> state = std::move(suspended->state);
  suspended.reset();
  std::unique_ptr<Context> context = std::move(state->context);
  if (!context->handOver(*impl_, impl_->schedule, state->event)) {
    context->takeBackRandom();
    context.reset();
    return run(fetched, suspended);
  }
  if (!context->bind(fetched)) {
    context->takeBackRandom();
    return {Outcome::Kind::Exited, nullptr, state->event};
  }
  Outcome outcome = impl_->runFrom(*context, state->event);
  return impl_->suspend(std::move(context), outcome, suspended);
}

}  // namespace glowplug::replay
