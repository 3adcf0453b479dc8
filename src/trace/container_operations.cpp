// What the bytecode does with containers: items, iteration, membership, length.

#include <fmt/format.h>

#include "cpython/modules.h"
#include "cpython/object_fields.h"
#include "trace/containers.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::StepKind;

// An item of a dict; a missing one may be made by __missing__, which collections.defaultdict then
// stores.
PyObject* Recorder::dictItem(PyObject* dict, PyObject* key, const Invoke& invoke) {
  static PyObject* name = PyUnicode_InternFromString("__missing__");
  bool sourced = provenance_.find(dict).valid();
  bool missing = !PyDict_CheckExact(dict) && PyDict_Contains(dict, key) == 0;
  if (sourced) readKey(dict, key);
  PyErr_Clear();
  PyObject* hook = missing ? typeAttr(Py_TYPE(dict), name) : nullptr;
  bool stores = hook && Py_IS_TYPE(hook, &PyMethodDescr_Type) && sourced;
  if (stores) {
    // The factory that makes it is a part of the dict's state.
    Ref factory = Ref::steal(PyObject_GetAttrString(dict, "default_factory"));
    SourceId source = provenance_.find(dict);
    static PyObject* field = PyUnicode_InternFromString("default_factory");
    if (factory) noteLoad(child(source, StepKind::GetAttr, field), factory.get());
    beforeWrite(dict);
  }
  PyObject* result = invoke();
  if (stores && result && active_) {
    wroteKey(dict, key);
    emitEffect(ir::EffectKind::SetItem, {dict, key, result});
  }
  return result;
}

PyObject* Recorder::loadItem(PyObject* container, PyObject* key) {
  endBefore();
  if (!active_) return Operations::loadItem(container, key);
  if (aten::isTensor(container) && !isForeign(key)) {
    if (PyTuple_Check(key) || PySlice_Check(key) || PyLong_Check(key) || key == Py_Ellipsis)
      useSizes(container);
    deepRead(key);
    PyObject* result = Operations::loadItem(container, key);
    noteTensorResult(result, nullptr);
    return result;
  }
  if (isForeign(container) || aten::isTensor(container)) {
    static PyObject* function = cpython::moduleAttribute("operator", "getitem");
    return callForeign(function, {container, key});
  }
  if (!scalars_.empty()) deepRead(key);
  if (PyDict_Check(container) && hasItemsOf(Py_TYPE(container), &PyDict_Type))
    return audited(dictItem(container, key, [&] { return Operations::loadItem(container, key); }),
                   "an item");
  readItem(container, key);
  return audited(Operations::loadItem(container, key), "an item");
}

int Recorder::storeItem(PyObject* container, PyObject* key, PyObject* value) {
  if (stopping_) return stop(), -1;
  if (!active_) return Operations::storeItem(container, key, value);
  if (aten::isTensor(container)) {
    useSizes(container);
    deepRead(key);
    if (value) deepRead(value);
    return Operations::storeItem(container, key, value);
  }
  if (isForeign(container)) {
    static PyObject* set = cpython::moduleAttribute("operator", "setitem");
    static PyObject* del = cpython::moduleAttribute("operator", "delitem");
    Ref done = Ref::steal(value ? callForeign(set, {container, key, value})
                                : callForeign(del, {container, key}));
    return done ? 0 : -1;
  }
  SourceId source = provenance_.find(container);
  if (source.valid() && !PyType_Check(container)) {
    PyTypeObject* type = Py_TYPE(container);
    auto set = type->tp_as_mapping ? type->tp_as_mapping->mp_ass_subscript : nullptr;
    bool dict = PyDict_Check(container) &&
                (set == PyDict_Type.tp_as_mapping->mp_ass_subscript ||
                 (wellKnown().orderedDict->tp_as_mapping &&
                  set == wellKnown().orderedDict->tp_as_mapping->mp_ass_subscript));
    bool list = PyList_Check(container) && set == PyList_Type.tp_as_mapping->mp_ass_subscript;
    if (dict || list || isDeque(container)) {
      useScalar(key);
      if (dict && !pinKey(key))
        refuse("unguardable", "a dict key that is a tensor or hashes by address");
      beforeWrite(container);
      if (dict) {
        if (!value) readKey(container, key);
        wroteKey(container, key);
      } else {
        readAll(container);
        deepRead(key);
      }
      int status = Operations::storeItem(container, key, value);
      if (status == 0) {
        if (value)
          emitEffect(ir::EffectKind::SetItem, {container, key, value});
        else
          emitEffect(ir::EffectKind::DelItem, {container, key});
      }
      return status;
    }
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
      refuse("unsupported_write", fmt::format("an item of a {} is set", type->tp_name));
  } else if (!scalars_.empty()) {
    useScalar(key);
  }
  return Operations::storeItem(container, key, value);
}

// An iterator whose position only C code knows.
bool Recorder::iteratesInC(PyObject* iterator) {
  static PyObject* name = PyUnicode_InternFromString("__next__");
  if (!PyIter_Check(iterator)) return false;
  PyObject* next = typeAttr(Py_TYPE(iterator), name);
  return !next || !PyFunction_Check(next);
}

PyObject* Recorder::iter(PyObject* iterable) {
  endBefore();
  if (!active_) return Operations::iter(iterable);
  if (!aten::isTensor(iterable)) {
    readAll(iterable);
    SourceId source = provenance_.find(iterable);
    if (source.valid() && iteratesInC(iterable))
      refuse("generator_input", Py_TYPE(iterable)->tp_name);
  }
  return Operations::iter(iterable);
}

PyObject* Recorder::next(PyObject* iterator) {
  if (!active_) return Operations::next(iterator);
  if (provenance_.find(iterator).valid() && iteratesInC(iterator))
    refuse("generator_input", Py_TYPE(iterator)->tp_name);
  PyObject* item = Operations::next(iterator);
  if (item && aten::isTensor(item)) noteTensorResult(item, nullptr);
  return audited(item, "an iteration");
}

PySendResult Recorder::send(PyObject* receiver, PyObject* value, PyObject** result) {
  if (active_ && provenance_.find(receiver).valid())
    refuse("generator_input", Py_TYPE(receiver)->tp_name);
  return Operations::send(receiver, value, result);
}

PyObject* Recorder::yieldFromIter(PyObject* iterable, cpython::FrameView frame) {
  if (active_) readAll(iterable);
  return Operations::yieldFromIter(iterable, frame);
}

int Recorder::unpack(PyObject* iterable, int before, int after, PyObject** out) {
  endBefore();
  if (active_) readAll(iterable);
  int status = Operations::unpack(iterable, before, after, out);
  for (int i = 0; status == 0 && i < before; i++) audited(out[i], "unpacking");
  return status;
}

int Recorder::contains(PyObject* container, PyObject* item) {
  endBefore();
  if (!active_) return Operations::contains(container, item);
  useScalar(item);
  if (PyObject* target = behindProxy(container); PyDict_Check(target)) {
    readKey(target, item);
  } else if (isForeign(container)) {
    static PyObject* function = cpython::moduleAttribute("operator", "contains");
    Ref answer = Ref::steal(callForeign(function, {container, item}));
    return answer ? answer.get() == Py_True : -1;
  } else if (PyAnySet_Check(container)) {
    readMember(container, item);
  } else if (aten::isTensor(container)) {
    useSizes(container);
    deepRead(item);
  } else {
    deepRead(container);
  }
  return Operations::contains(container, item);
}

int Recorder::listExtend(PyObject* list, PyObject* iterable) {
  if (active_) readAll(iterable);
  return Operations::listExtend(list, iterable);
}

int Recorder::setUpdate(PyObject* set, PyObject* iterable) {
  if (active_) readAll(iterable);
  return Operations::setUpdate(set, iterable);
}

int Recorder::dictUpdate(PyObject* dict, PyObject* mapping) {
  if (active_) readAll(mapping);
  return Operations::dictUpdate(dict, mapping);
}

int Recorder::dictMerge(PyObject* dict, PyObject* mapping, PyObject* callee) {
  if (active_) readAll(mapping);
  return Operations::dictMerge(dict, mapping, callee);
}

PyObject* Recorder::sequenceToTuple(PyObject* iterable, PyObject* callee) {
  if (active_) readAll(iterable);
  return Operations::sequenceToTuple(iterable, callee);
}

PyObject* Recorder::matchKeys(PyObject* mapping, PyObject* keys) {
  if (active_ && PyDict_Check(mapping))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++)
      readKey(mapping, PyTuple_GET_ITEM(keys, i));
  return Operations::matchKeys(mapping, keys);
}

PyObject* Recorder::length(PyObject* value) {
  if (!active_) return Operations::length(value);
  if (isForeign(value)) {
    static PyObject* function = cpython::moduleAttribute("builtins", "len");
    return callForeign(function, {value});
  }
  if (aten::isTensor(value)) useSizes(value);
  useScalar(value);
  readLength(value);
  return Operations::length(value);
}

}  // namespace glowplug::trace
