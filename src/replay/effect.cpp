// Committing effects. A write was recorded where the object's own (builtin) setter ran; it is repeated
// by that setter, and not by a __setattr__ or __setitem__ of the user's, which has had its say.

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

int setAttr(PyObject* object, PyObject* name, PyObject* value) {
  if (PyType_Check(object)) return PyObject_SetAttr(object, name, value);
  return PyObject_GenericSetAttr(object, name, value);
}

}  // namespace

bool Plan::Impl::doEffect(const Event& event, const std::vector<Ref>& operands) const {
  auto operand = [&](size_t i) { return i < operands.size() ? operands[i].get() : nullptr; };
  switch (event.effect) {
    case EffectKind::SetAttr:
    case EffectKind::DelAttr:
      return setAttr(operand(0), operand(1), operand(2)) == 0;
    case EffectKind::SetItem:
    case EffectKind::DelItem:
      return setItem(operand(0), operand(1), operand(2)) == 0;
    case EffectKind::SetCell:
      return PyCell_Set(operand(0), operand(1)) == 0;
    case EffectKind::CallMethod: {
      std::vector<PyObject*> arguments;
      for (const Ref& item : operands) arguments.push_back(item.get());
      PyObject* keywords = event.keywords.valid() ? objects.get(event.keywords) : nullptr;
      size_t named = keywords ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0;
      Ref result = Ref::steal(PyObject_Vectorcall(arguments[0], arguments.data() + 1,
                                                  arguments.size() - 1 - named, keywords));
      return static_cast<bool>(result);
    }
  }
  return false;
}

}  // namespace glowplug::replay
