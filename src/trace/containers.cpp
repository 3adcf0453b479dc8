// Reads of and writes to containers that came from outside.
//
// A read guards the part that was read: one key, the length, or everything. The first write keeps a
// shallow copy of what was there, because a later read of a part that was not written is a read of
// that state. After everything was read or replaced the container behaves as a fresh one.

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "cpython/object_fields.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

namespace {

bool isDeque(PyObject* object) { return PyObject_TypeCheck(object, wellKnown().deque); }

// The method takes over what an argument holds, not the argument.
bool copiesContent(PyObject* method) {
  static const std::unordered_set<std::string_view> names = {"extend",
                                                             "extendleft",
                                                             "update",
                                                             "intersection_update",
                                                             "difference_update",
                                                             "__iadd__",
                                                             "__ior__",
                                                             "__iand__",
                                                             "__isub__",
                                                             "symmetric_difference_update",
                                                             "__ixor__"};
  PyTypeObject* type = Py_TYPE(method);
  if (type != &PyMethodDescr_Type && type != &PyWrapperDescr_Type) return false;
  const char* name = PyUnicode_AsUTF8(PyDescr_NAME(method));
  return name && names.count(name);
}

// A container with what this one holds now.
Ref shallowCopy(PyObject* object) {
  if (PyDict_Check(object)) return Ref::steal(PyDict_Copy(object));
  if (PyAnySet_Check(object)) return Ref::steal(PySet_New(object));
  return Ref::steal(PySequence_List(object));
}

bool isKnownContainer(PyObject* object) {
  return PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) ||
         PyAnySet_Check(object) || isDeque(object);
}

}  // namespace

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
    if (type->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript)
      readKey(container, key);
    return;  // otherwise __getitem__ in Python, evaluated
  }
  bool list = PyList_Check(container), tuple = PyTuple_Check(container);
  if ((list && type->tp_as_mapping->mp_subscript == PyList_Type.tp_as_mapping->mp_subscript) ||
      (tuple && type->tp_as_mapping->mp_subscript == PyTuple_Type.tp_as_mapping->mp_subscript)) {
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
    return;
  }
  if (PySlice_Check(object)) {
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

void Recorder::beforeWrite(PyObject* container) {
  if (!active_ || !isSourced(container) || provenance_.written(container)) return;
  Ref snapshot;
  if (PyDict_Check(container))
    snapshot = Ref::steal(PyDict_Copy(container));
  else if (PyAnySet_Check(container))
    snapshot = Ref::steal(PyFrozenSet_New(container));
  else
    snapshot = Ref::steal(PySequence_List(container));
  if (!snapshot) PyErr_Clear();
  provenance_.startWriting(container, std::move(snapshot));
}

void Recorder::wroteKey(PyObject* container, PyObject* key) {
  provenance_.forgetReads();
  Provenance::Written* written = provenance_.written(container);
  if (!written) return;
  if (PySet_Add(written->keys.get(), provenance_.canonical(key)) < 0) PyErr_Clear();
}

// Effects name their operands by recipes that are made when the recording ends, so that a fresh
// object is described in its final state. A tensor is not kept alive for that: its value is known
// now.
void Recorder::emitEffect(ir::EffectKind kind, std::initializer_list<PyObject*> operands) {
  provenance_.forgetReads();
  if (!active_) return;
  ir::Event event;
  event.kind = ir::EventKind::Effect;
  event.effect = kind;
  PyObject* const* at = operands.begin();
  bool slice = kind == ir::EffectKind::SetItem && PySlice_Check(at[1]);
  PendingEffect pending{trace().events.size(), {}};
  for (PyObject* operand : operands) addOperand(event, pending, operand, slice && operand == at[2]);
  emit(std::move(event));
  pendingEffects_.push_back(std::move(pending));
}

// copied: the effect takes over what the operand holds now, whatever becomes of the operand.
void Recorder::addOperand(ir::Event& event, PendingEffect& pending, PyObject* operand,
                          bool copied) {
  bool early = aten::isTensor(operand) && ops_->find(operand).valid();
  event.recipes.push_back(early ? tensorRecipe(operand) : common::RecipeId());
  Ref now;
  if (copied && isKnownContainer(operand) && !isConstant(operand) &&
      !provenance_.find(operand).valid()) {
    now = shallowCopy(operand);
    if (!now) PyErr_Clear();
  }
  if (!early && !now) now = Ref::borrow(operand);
  pending.operands.push_back(std::move(now));
}

// A method of a builtin container that writes: it is called again at replay.
Recorder::PendingEffect Recorder::describeEffect(ir::Event& event, PyObject* callee,
                                                 const Arguments& args) {
  event.kind = ir::EventKind::Effect;
  event.effect = ir::EffectKind::CallMethod;
  if (args.kwnames && PyTuple_GET_SIZE(args.kwnames)) event.keywords = objectId(args.kwnames);
  PendingEffect pending{0, {}};
  addOperand(event, pending, callee, false);
  bool copies = copiesContent(callee);
  for (size_t i = 0; i < args.count(); i++)
    addOperand(event, pending, args.values[i], copies && i > 0 && i < args.positional);
  return pending;
}

void Recorder::emitEffect(ir::Event event, PendingEffect pending) {
  provenance_.forgetReads();
  if (!active_) return;
  pending.event = trace().events.size();
  emit(std::move(event));
  pendingEffects_.push_back(std::move(pending));
}

// Whether the container differs in size from what it was before it was written first.
bool Recorder::changedBefore(PyObject* container) {
  Provenance::Written* entry = provenance_.written(container);
  if (!entry || !entry->snapshot) return true;
  Py_ssize_t before = PyObject_Size(entry->snapshot.get()), now = PyObject_Size(container);
  return before != now;
}

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
  if (!active_) return Operations::loadItem(container, key);
  if (aten::isTensor(container)) {
    if (PyTuple_Check(key) || PySlice_Check(key) || PyLong_Check(key) || key == Py_Ellipsis)
      useSizes(container);
    deepRead(key);
    PyObject* result = Operations::loadItem(container, key);
    noteTensorResult(result, nullptr);
    return result;
  }
  if (isForeign(container)) {
    static PyObject* function =
        PyObject_GetAttrString(PyImport_ImportModule("operator"), "getitem");
    return callForeign(function, {container, key});
  }
  if (!scalars_.empty()) deepRead(key);
  if (PyDict_Check(container) &&
      Py_TYPE(container)->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript)
    return audited(dictItem(container, key, [&] { return Operations::loadItem(container, key); }),
                   "an item");
  readItem(container, key);
  return audited(Operations::loadItem(container, key), "an item");
}

int Recorder::storeItem(PyObject* container, PyObject* key, PyObject* value) {
  if (!active_) return Operations::storeItem(container, key, value);
  if (aten::isTensor(container)) {
    useSizes(container);
    deepRead(key);
    if (value) deepRead(value);
    return Operations::storeItem(container, key, value);
  }
  if (isForeign(container)) {
    static PyObject* set = PyObject_GetAttrString(PyImport_ImportModule("operator"), "setitem");
    static PyObject* del = PyObject_GetAttrString(PyImport_ImportModule("operator"), "delitem");
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

PyObject* Recorder::iter(PyObject* iterable) {
  if (!active_) return Operations::iter(iterable);
  if (!aten::isTensor(iterable)) {
    readAll(iterable);
    SourceId source = provenance_.find(iterable);
    if (source.valid() && PyIter_Check(iterable) &&
        !(Py_TYPE(iterable)->tp_flags & Py_TPFLAGS_HEAPTYPE))
      refuse("generator_input", Py_TYPE(iterable)->tp_name);
  }
  return Operations::iter(iterable);
}

PyObject* Recorder::next(PyObject* iterator) {
  if (!active_) return Operations::next(iterator);
  if (provenance_.find(iterator).valid() && !(Py_TYPE(iterator)->tp_flags & Py_TPFLAGS_HEAPTYPE))
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
  if (active_) readAll(iterable);
  int status = Operations::unpack(iterable, before, after, out);
  for (int i = 0; status == 0 && i < before; i++) audited(out[i], "unpacking");
  return status;
}

int Recorder::contains(PyObject* container, PyObject* item) {
  if (!active_) return Operations::contains(container, item);
  useScalar(item);
  if (PyObject* target = behindProxy(container); PyDict_Check(target)) {
    readKey(target, item);
  } else if (isForeign(container)) {
    static PyObject* function =
        PyObject_GetAttrString(PyImport_ImportModule("operator"), "contains");
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
    static PyObject* function = PyObject_GetAttrString(PyImport_ImportModule("builtins"), "len");
    return callForeign(function, {value});
  }
  if (aten::isTensor(value)) useSizes(value);
  useScalar(value);
  readLength(value);
  return Operations::length(value);
}

}  // namespace glowplug::trace
