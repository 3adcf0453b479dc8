// Reads of containers that came from outside.
//
// A read guards the part that was read: one key, the length, or everything. A read of a part that
// the program wrote guards nothing; one of a part that it did not write reads the shallow copy that
// the first write kept (effects.cpp). After everything was read or replaced the container behaves
// as a fresh one.

#include <fmt/format.h>

#include <unordered_set>

#include "cpython/object_fields.h"
#include "trace/containers.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

bool isDeque(PyObject* object) { return PyObject_TypeCheck(object, wellKnown().deque); }

// By what is found and not by the slot: dict and list define __getitem__ as a method, so that the
// slot of every subclass looks it up.
bool hasItemsOf(PyTypeObject* type, PyTypeObject* base) {
  static PyObject* name = PyUnicode_InternFromString("__getitem__");
  return _PyType_Lookup(type, name) == _PyType_Lookup(base, name);
}

bool isKnownContainer(PyObject* object) {
  return PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) ||
         PyAnySet_Check(object) || isDeque(object);
}

// What the program wrote and something unknown may have changed since is neither what it was when
// the call began nor what was written.
Provenance::Written* Recorder::written(PyObject* container) {
  Provenance::Written* entry = provenance_.written(container);
  if (entry && entry->sealed)
    refuse("opaque_call", "something is read after a call that may have changed it");
  return entry;
}

bool Recorder::isWritten(PyObject* container, PyObject* key) {
  if (!provenance_.isWritten(container, key)) return false;
  written(container);
  return true;
}

// A key is compared by value (constants) or identity (pinned objects). An object that hashes by its
// address is the same key only while it is the same object.
bool Recorder::pinKey(PyObject* key) {
  if (isConstant(key) || isPinnable(key)) return true;
  SourceId source = provenance_.find(key);
  if (!source.valid()) {
    if (PyTuple_CheckExact(key)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
        if (!pinKey(PyTuple_GET_ITEM(key, i))) return false;
      return true;
    }
    return !aten::isTensor(key);
  }
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(key))) return false;
  guard(PredicateKind::IdentityIs, source, key);
  return true;
}

void Recorder::readKey(PyObject* dict, PyObject* key) {
  SourceId source = provenance_.find(dict);
  if (!active_ || !source.valid()) return;
  useScalar(key);
  // By identity of the key object, which the constants or names of the program keep alive.
  if (PyUnicode_CheckExact(key) && PyUnicode_CHECK_INTERNED(key) && provenance_.wasRead(dict, key))
    return;
  if (!pinKey(key))
    return refuse("unguardable", "a dict key that is a tensor or hashes by address");
  key = provenance_.canonical(key);
  if (isWritten(dict, key)) return;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (!value && PyErr_Occurred()) return PyErr_Clear();  // unhashable: the real read raises
  if (value)
    noteLoad(child(source, StepKind::DictItem, key), value);
  else
    guard(PredicateKind::Missing, source, key);
}

void Recorder::readSnapshot(PyObject* container, Provenance::Written& written) {
  SourceId source = provenance_.find(container);
  Ref before = written.snapshot;
  written.whole = true;
  if (!before) return;
  if (PyDict_Check(before.get())) {
    Ref keys = Ref::steal(PySequence_Tuple(before.get()));
    guard(PredicateKind::DictKeys, source, keys.get());
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(before.get(), &position, &key, &value)) {
      if (!pinKey(key)) return refuse("unguardable", "a dict key that hashes by address");
      noteLoad(child(source, StepKind::DictItem, key), value);
    }
  } else if (PyList_Check(before.get())) {
    Py_ssize_t count = PyList_GET_SIZE(before.get());
    guardLength(source, count);
    StepKind step = isDeque(container) ? StepKind::DequeItem : StepKind::ListItem;
    for (Py_ssize_t i = 0; i < count; i++)
      noteLoad(child(source, step, i), PyList_GET_ITEM(before.get(), i));
  } else {
    if (!isConstant(before.get())) return refuse("unguardable", "a set of objects");
    guard(PredicateKind::SetEq, source, before.get());
  }
}

// The dict behind a mapping proxy, with its path; other objects are given back as they are. The
// dict of a class cannot be guarded as a container: look-ups on classes go another way.
PyObject* Recorder::behindProxy(PyObject* object) {
  if (!active_ || !Py_IS_TYPE(object, wellKnown().mappingProxy)) return object;
  PyObject* target = *cpython::proxyTargetAddress(object);
  if (classDicts_.count(target)) {
    refuse("unguardable", "the __dict__ of a class is read");
    return object;
  }
  SourceId source = provenance_.find(object);
  if (source.valid() && !provenance_.find(target).valid())
    noteLoad(child(source, StepKind::ProxyTarget), target);
  return target;
}

void Recorder::readAll(PyObject* container) {
  if (!active_ || isConstant(container)) return;
  if (isForeign(container))
    return refuse("unguardable", fmt::format("the items of a {}", Py_TYPE(container)->tp_name));
  container = behindProxy(container);
  if (Py_IS_TYPE(container, &PyDictKeys_Type) || Py_IS_TYPE(container, &PyDictValues_Type) ||
      Py_IS_TYPE(container, &PyDictItems_Type)) {
    PyObject* dict =
        reinterpret_cast<_PyDictViewObject*>(container)->dv_dict
            ? reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(container)->dv_dict)
            : nullptr;
    if (dict) readAll(dict);
    return;
  }
  SourceId source = provenance_.find(container);
  if (!source.valid()) return;
  if (Provenance::Written* entry = written(container)) {
    if (!entry->whole) readSnapshot(container, *entry);
    return;
  }
  if (PyDict_Check(container)) {
    Ref keys = Ref::steal(PySequence_Tuple(container));
    if (!keys)
      return PyErr_Clear(), refuse("unguardable", "a dict subclass with its own iteration");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++)
      if (!pinKey(PyTuple_GET_ITEM(keys.get(), i)))
        return refuse("unguardable", "a dict key that is a tensor or hashes by address");
    guard(PredicateKind::DictKeys, source, provenance_.canonicalTuple(keys.get()));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(container, &position, &key, &value))
      noteLoad(child(source, StepKind::DictItem, key), value);
  } else if (PyList_Check(container) || PyTuple_Check(container)) {
    Py_ssize_t count = Py_SIZE(container);
    guardLength(source, count);
    bool list = PyList_Check(container);
    for (Py_ssize_t i = 0; i < count; i++)
      noteLoad(child(source, list ? StepKind::ListItem : StepKind::TupleItem, i),
               list ? PyList_GET_ITEM(container, i) : PyTuple_GET_ITEM(container, i));
  } else if (PyAnySet_Check(container)) {
    Ref frozen = Ref::steal(PyFrozenSet_New(container));
    if (!frozen || !isConstant(frozen.get())) return refuse("unguardable", "a set of objects");
    guard(PredicateKind::SetEq, source, frozen.get());
  } else if (isDeque(container)) {
    Ref items = Ref::steal(PySequence_List(container));
    guardLength(source, PyList_GET_SIZE(items.get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++)
      noteLoad(child(source, StepKind::DequeItem, i), PyList_GET_ITEM(items.get(), i));
  }
}

void Recorder::readLength(PyObject* container) {
  if (!active_) return;
  container = behindProxy(container);
  SourceId source = provenance_.find(container);
  if (!source.valid() || isConstant(container)) return;
  if (!isKnownContainer(container)) return;  // __len__ / __bool__ in Python, evaluated
  if (written(container)) return readAll(container);
  if (isDeque(container) || PyAnySet_Check(container) || PyDict_Check(container) ||
      PyList_Check(container) || PyTuple_Check(container))
    guardLength(source, PyObject_Size(container));
}

void Recorder::readItem(PyObject* container, PyObject* key) {
  if (!active_) return;
  container = behindProxy(container);
  SourceId source = provenance_.find(container);
  if (PyType_Check(container) || !source.valid()) return;
  PyTypeObject* type = Py_TYPE(container);
  if (PyDict_Check(container)) {
    if (hasItemsOf(type, &PyDict_Type)) readKey(container, key);
    return;  // otherwise __getitem__ in Python, evaluated
  }
  bool list = PyList_Check(container), tuple = PyTuple_Check(container);
  if ((list && hasItemsOf(type, &PyList_Type)) || (tuple && hasItemsOf(type, &PyTuple_Type))) {
    Py_ssize_t index = PyLong_CheckExact(key) ? PyLong_AsSsize_t(key) : -1;
    bool inside = index >= 0 && index < Py_SIZE(container);
    if (PyErr_Occurred()) PyErr_Clear();
    if (!inside || written(container)) return readAll(container);
    noteLoad(child(source, list ? StepKind::ListItem : StepKind::TupleItem, index),
             list ? PyList_GET_ITEM(container, index) : PyTuple_GET_ITEM(container, index));
    return;
  }
  if (isDeque(container)) return readAll(container);
  if (type->tp_as_mapping && (type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return;  // evaluated
  if (!isConstant(container)) refuse("unguardable", fmt::format("an item of a {}", type->tp_name));
}

// Whether an item is in a set.
void Recorder::readMember(PyObject* set, PyObject* item) {
  SourceId source = provenance_.find(set);
  if (!active_ || !source.valid() || isConstant(set)) return;
  bool byAddress = isPinnable(item) && Py_TYPE(item)->tp_hash == PyBaseObject_Type.tp_hash;
  if (!isConstant(item) && !byAddress) return readAll(set);
  if (written(set)) return readAll(set);
  int found = PySet_Contains(set, item);
  if (found < 0) return PyErr_Clear();  // the real read raises
  guard(found ? PredicateKind::Contains : PredicateKind::Lacks, source,
        provenance_.canonical(item));
}

// A C function may look at `object` and at everything in it that builtin containers hold.
void Recorder::deepRead(PyObject* object) {
  if (!active_ || !object) return;
  std::unordered_set<PyObject*> seen;
  deepRead(object, seen);
}

void Recorder::deepRead(PyObject* object, std::unordered_set<PyObject*>& seen) {
  if (!active_) return;
  if (!scalars_.empty()) useScalar(object);
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyUnicode_Type || object == Py_None) return;
  if (isKnownContainer(object)) {
    if (!seen.insert(object).second) return;
    constexpr int kDeepest = 1000;
    if (depth_ >= kDeepest) return refuse("unguardable", "containers in containers, too deep");
    depth_++;
    readAll(object);
    if (PyDict_Check(object)) {
      PyObject *key, *value;
      Py_ssize_t position = 0;
      while (active_ && PyDict_Next(object, &position, &key, &value)) {
        deepRead(key, seen);
        deepRead(value, seen);
      }
    } else if (PyList_Check(object) || PyTuple_Check(object)) {
      for (Py_ssize_t i = 0; active_ && i < Py_SIZE(object); i++)
        deepRead(PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i),
                 seen);
    } else if (isDeque(object)) {
      Ref items = Ref::steal(PySequence_List(object));
      if (items) deepRead(items.get(), seen);
    }
    depth_--;
    return;
  }
  if (PyExceptionInstance_Check(object)) {
    deepRead(reinterpret_cast<PyBaseExceptionObject*>(object)->args, seen);
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) deepRead(part, seen);
  } else if (type == &PyDictKeys_Type || type == &PyDictValues_Type || type == &PyDictItems_Type) {
    readAll(object);
    if (auto* dict = reinterpret_cast<_PyDictViewObject*>(object)->dv_dict)
      deepRead(reinterpret_cast<PyObject*>(dict), seen);
  } else if (type == wellKnown().mappingProxy) {
    PyObject* target = behindProxy(object);
    if (target != object) deepRead(target, seen);
  }
}

}  // namespace glowplug::trace
