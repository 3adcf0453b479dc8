// Making a trace executable: what is needed when, which operators form segments, which plans share a beginning.

#include "replay/plan.h"

#include <algorithm>

#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::SourceId;
using common::ValueId;
using ir::Event;
using ir::EventKind;
using ir::Operand;

namespace {

void visitValues(const Operand& operand, const std::function<void(ValueId)>& visitor) {
  if (operand.kind == Operand::Kind::Value) visitor(operand.value);
  for (const Operand& item : operand.items) visitValues(item, visitor);
}

bool isLateGuard(const Event& event) {
  return event.kind == EventKind::Fork || event.kind == EventKind::Sizes;
}

// Its results are numbers that go to Python, not tensors.
bool givesScalar(const ir::Trace& trace, const Event& event) {
  return event.kind == EventKind::Op &&
         std::any_of(event.results.begin(), event.results.end(), [&](ValueId id) {
           return id.valid() && trace.values[id.index()].kind == ir::ValueKind::Scalar;
         });
}

bool sameOperand(const Operand& a, const Operand& b, const Plan::Impl& first,
                 const Plan::Impl& second) {
  if (a.kind != b.kind || a.value != b.value || a.items.size() != b.items.size()) return false;
  if (a.kind == Operand::Kind::Const &&
      first.ops.ivalueText(a.constant) != second.ops.ivalueText(b.constant))
    return false;
  for (size_t i = 0; i < a.items.size(); i++)
    if (!sameOperand(a.items[i], b.items[i], first, second)) return false;
  return true;
}

bool sameExpectation(const Event& a, const Event& b, const Plan::Impl& first,
                     const Plan::Impl& second) {
  if (a.kind == EventKind::Sizes) return a.sizes == b.sizes;
  PyObject* left = first.objects.get(a.expected);
  PyObject* right = second.objects.get(b.expected);
  if (!left || !right || Py_TYPE(left) != Py_TYPE(right)) return false;
  int equal = PyObject_RichCompareBool(left, right, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

// The same up to the recipes of effects, which each plan commits by its own.
bool sameEvent(const Event& a, const Event& b, const Plan::Impl& first, const Plan::Impl& second) {
  if (a.kind != b.kind || a.results != b.results || a.value != b.value || a.logOnly != b.logOnly ||
      a.operands.size() != b.operands.size() || a.state != b.state)
    return false;
  if (a.kind == EventKind::Op && first.ops.operatorName(a.op) != second.ops.operatorName(b.op))
    return false;
  for (size_t i = 0; i < a.operands.size(); i++)
    if (!sameOperand(a.operands[i], b.operands[i], first, second)) return false;
  return !isLateGuard(a) || sameExpectation(a, b, first, second);
}

}  // namespace

const char* Plan::refusal(const ir::Trace& trace, size_t* event) {
  bool committed = false;
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& at = trace.events[e];
    *event = e;
    if (committed && isLateGuard(at)) return "guard_after_effect";
    if (at.kind == EventKind::Opaque || (at.kind == EventKind::Op && at.writesInput)) committed = true;
  }
  return nullptr;
}

Plan::Plan(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops)
    : impl_(std::make_unique<Impl>(trace, objects, ops)) {}
Plan::~Plan() = default;

Plan::Impl::Impl(const ir::Trace& trace, const cpython::ObjectTable& objects,
                 const aten::OpTable& ops)
    : trace(trace), objects(objects), ops(ops), valueCapacity(trace.values.size()) {
  collectUses();
  findSegments();
  drops = lastUses();
  program = std::make_unique<aten::OpProgram>(trace, ops, drops);
}

Plan::Impl::~Impl() {
  for (const Joined& join : joined)
    std::erase_if(join.other->joined, [this](const Joined& back) { return back.other == this; });
}

size_t Plan::Impl::want(SourceId source) {
  auto [it, added] = wantedIndex.emplace(source.value, wanted.size());
  if (added) wanted.push_back(source);
  return it->second;
}

void Plan::Impl::collectUses() {
  uses.resize(trace.values.size());
  madeAt.assign(trace.values.size(), -1);
  size_t end = trace.events.empty() ? 0 : trace.events.size() - 1;
  for (size_t e = 0; e < trace.events.size(); e++) {
    const Event& event = trace.events[e];
    auto use = [&](ValueId id, size_t at) { uses[id.index()].push_back(static_cast<uint32_t>(at)); };
    for (ValueId id : event.results)
      if (id.valid() && madeAt[id.index()] < 0) madeAt[id.index()] = static_cast<int64_t>(e);
    for (const Operand& operand : event.operands)
      visitValues(operand, [&](ValueId id) { use(id, e); });
    if (isLateGuard(event)) use(event.value, e);
    if (event.kind == EventKind::Input)
      inputs.emplace_back(event.results[0], want(trace.values[event.results[0].index()].source));
    if (event.kind == EventKind::Effect) effects.push_back(e);
    hasState |= event.kind == EventKind::State;
    hasRandom |= event.random;
    // Effects are committed at the end (or before an opaque call), so what they need lives until then.
    size_t at = event.kind == EventKind::Opaque ? e : end;
    visitRecipes(trace, event.recipes, [&](const ir::Recipe& recipe) {
      if (recipe.value.valid()) use(recipe.value, at);
      if (recipe.source.valid()) want(recipe.source);
    });
  }
  for (auto& list : uses) std::sort(list.begin(), list.end());
}

std::vector<std::vector<ValueId>> Plan::Impl::lastUses() const {
  std::vector<std::vector<ValueId>> result(trace.events.size());
  for (size_t v = 0; v < trace.values.size(); v++) {
    int64_t last = uses[v].empty() ? madeAt[v] : std::max<int64_t>(uses[v].back(), madeAt[v]);
    // A plan that takes over at a late guard may need more of what was made before.
    for (const Joined& join : joined) {
      bool known = madeAt[v] >= 0 && madeAt[v] < static_cast<int64_t>(join.event);
      if (known && v < join.other->uses.size() && !join.other->uses[v].empty() &&
          join.other->uses[v].back() >= join.event)
        last = std::max(last, static_cast<int64_t>(join.event));
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
    if (isLateGuard(event) || (event.kind == EventKind::Opaque && !event.logOnly)) open = false;
    if (event.kind != EventKind::Op) continue;
    if (!open) segments.push_back({e, e + 1, {}, {}, 0});
    open = true;
    segments.back().end = e + 1;
    if (!givesScalar(trace, event)) segments.back().operators++;
  }
  for (size_t s = 0; s < segments.size(); s++) {
    Segment& segment = segments[s];
    std::unordered_set<uint32_t> seen, made;
    for (size_t e = segment.begin; e < segment.end; e++) {
      segmentOf[e] = static_cast<int>(s);
      const Event& event = trace.events[e];
      if (event.kind != EventKind::Op || givesScalar(trace, event)) continue;
      for (const Operand& operand : event.operands)
        visitValues(operand, [&](ValueId id) {
          if (!made.count(id.value) && seen.insert(id.value).second) segment.inputs.push_back(id);
        });
      for (ValueId id : event.results)
        if (id.valid() && !seen.count(id.value)) made.insert(id.value);
    }
    for (size_t v = 0; v < trace.values.size(); v++) {
      if (!made.count(static_cast<uint32_t>(v))) continue;
      for (uint32_t user : uses[v]) {
        const Event& event = trace.events[user];
        bool inside = user >= segment.begin && user < segment.end &&
                      event.kind == EventKind::Op && !givesScalar(trace, event);
        if (inside) continue;
        segment.outputs.push_back(ValueId(v));
        break;
      }
    }
  }
}

const std::vector<SourceId>& Plan::wanted() const { return impl_->wanted; }
const std::vector<Segment>& Plan::segments() const { return impl_->segments; }

bool Plan::canLower(size_t index) const {
  const Segment& segment = impl_->segments[index];
  bool scalar = false;
  for (size_t e = segment.begin; e < segment.end; e++) {
    const Event& event = impl_->trace.events[e];
    if (event.kind == EventKind::State) return false;
    if (scalar && event.writesInput) return false;
    scalar |= givesScalar(impl_->trace, event);
  }
  return true;
}

void Plan::setBackend(size_t index, PyObject* callable) {
  impl_->backends.resize(impl_->segments.size());
  impl_->backends[index] = cpython::Ref::borrow(callable);
}

bool Plan::join(Plan& first, Plan& second) {
  Impl& a = *first.impl_;
  Impl& b = *second.impl_;
  size_t count = std::min(a.trace.events.size(), b.trace.events.size());
  for (size_t e = 0; e < count; e++) {
    const Event& left = a.trace.events[e];
    const Event& right = b.trace.events[e];
    if (sameEvent(left, right, a, b)) continue;
    bool differ = isLateGuard(left) && left.kind == right.kind && left.value == right.value &&
                  !sameExpectation(left, right, a, b);
    if (!differ) return false;
    a.joined.push_back({&b, e});
    b.joined.push_back({&a, e});
    a.valueCapacity = b.valueCapacity = std::max(a.valueCapacity, b.valueCapacity);
    a.refreshLastUses();
    b.refreshLastUses();
    return true;
  }
  return false;
}

bool Plan::covers(const Suspended& suspended) const {
  const Suspended::State& state = *suspended.state;
  for (const Impl::Joined& join : impl_->joined)
    if (join.other == state.origin && join.event == state.event)
      return impl_->isMet(state.context, impl_->trace.events[join.event]);
  return false;
}

int Plan::traverse(visitproc visit, void* arg) const {
  for (const cpython::Ref& backend : impl_->backends) Py_VISIT(backend.get());
  return 0;
}

}  // namespace glowplug::replay
