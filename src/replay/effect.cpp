// Committing effects. A write was recorded where the object's own (builtin) setter ran; it is
// repeated by that setter, and not by a __setattr__ or __setitem__ of the user's, which has had its
// say.

#include "replay/plan_impl.h"

namespace glowplug::replay {

using cpython::Ref;
using ir::EffectKind;
using ir::Event;

namespace {

int setItem(PyObject* container, PyObject* key, PyObject* value) {
  if (PyODict_Check(container))
    return value ? PyODict_SetItem(container, key, value) : PyODict_DelItem(container, key);
  if (PyDict_Check(container))
    return value ? PyDict_SetItem(container, key, value) : PyDict_DelItem(container, key);
  if (PyList_Check(container))
    return PyList_Type.tp_as_mapping->mp_ass_subscript(container, key, value);
  return value ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key);
}

bool callMethod(const std::vector<Ref>& operands, PyObject* keywords) {
  std::vector<PyObject*> arguments;
  arguments.reserve(operands.size());
  for (const Ref& item : operands) arguments.push_back(item.get());
  size_t named = keywords ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0;
  return static_cast<bool>(Ref::steal(PyObject_Vectorcall(arguments[0], arguments.data() + 1,
                                                          arguments.size() - 1 - named, keywords)));
}

}  // namespace

bool Plan::Impl::doEffect(const Event& event, const Objects& operands) const {
  auto operand = [&](size_t i) { return i < operands.size() ? operands[i].get() : nullptr; };
  switch (event.effect) {
    case EffectKind::SetAttr:
    case EffectKind::DelAttr:
      return cpython::setAttribute(operand(0), operand(1), operand(2)) == 0;
    case EffectKind::SetItem:
    case EffectKind::DelItem:
      return setItem(operand(0), operand(1), operand(2)) == 0;
    case EffectKind::SetCell:
      return PyCell_Set(operand(0), operand(1)) == 0;
    case EffectKind::CallMethod:
      return callMethod(operands, event.keywords.valid() ? objects.get(event.keywords) : nullptr);
  }
  return false;
}

bool Plan::Impl::prepareEffect(Context& context, size_t effect,
                               std::vector<Pending>& pending) const {
  Pending& added = pending.emplace_back(Pending{effect, {}});
  for (common::RecipeId id : trace.events[commits.events[effect]].recipes) {
    added.operands.push_back(context.build(id));
    if (!added.operands.back()) return false;
  }
  return true;
}

// Builds what the effects up to number `end` need. Nothing is committed by that, so a failure here
// still leaves everything as it was.
bool Plan::Impl::prepareEffects(Context& context, size_t end, std::vector<Pending>& pending) const {
  for (size_t i = context.committedEffects; i < end; i++)
    if (!prepareEffect(context, i, pending)) return false;
  return true;
}

// last: nothing that could stop the replay comes after.
bool Plan::Impl::commit(Context& context, const std::vector<Pending>& pending, bool last) const {
  for (const Pending& next : pending) {
    const Event& event = trace.events[commits.events[next.effect]];
    if (!last && !note(context.undo, event, next.operands)) return false;
    context.committed = true;
    context.committedEffects = next.effect + 1;
    if (!doEffect(event, next.operands)) return false;
  }
  return true;
}

// An error at `event` ends the program, which has done what stands before it. Effects that need a
// tensor that was not made any more (a list that it was to be appended to) are left out.
void Plan::Impl::commitBeforeError(Context& context, size_t event) const {
  std::vector<Pending> pending;
  for (size_t i = context.committedEffects; i < commits.events.size() && commits.events[i] < event;
       i++) {
    if (commits.latest[i] >= static_cast<int64_t>(event)) continue;
    if (!prepareEffect(context, i, pending)) {
      PyErr_Clear();
      pending.pop_back();
    }
  }
  if (!commit(context, pending, true)) PyErr_Clear();
}

}  // namespace glowplug::replay
