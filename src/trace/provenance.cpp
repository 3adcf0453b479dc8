#include "trace/provenance.h"

#include <algorithm>

#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;

void Provenance::remember(PyObject* object, SourceId source, Life life) {
  if (!sources_.emplace(object, source).second) return;
  (life == Life::Call ? mortal_ : alive_).push_back(Ref::borrow(object));
  objects_.emplace(source, object);
}

Ref Provenance::takeEnded() {
  auto it = std::find_if(mortal_.begin(), mortal_.end(),
                         [](const Ref& object) { return Py_REFCNT(object.get()) == 1; });
  if (it == mortal_.end()) return Ref();
  Ref ended = std::move(*it);
  mortal_.erase(it);
  auto source = sources_.find(ended.get());
  objects_.erase(source->second);
  sources_.erase(source);
  written_.erase(ended.get());
  fresh_.erase(ended.get());
  forgetReads();
  return ended;
}

SourceId Provenance::intern(ir::Trace& trace, const ir::Source& source) {
  Key key{static_cast<uint64_t>(source.step) << 32 | source.parent.value, source.object.value,
          static_cast<uint64_t>(source.index)};
  auto [it, added] = interned_.emplace(key, SourceId(trace.sources.size()));
  if (added) trace.sources.push_back(source);
  return it->second;
}

PyObject* Provenance::canonical(PyObject* key) {
  if (!PyUnicode_CheckExact(key)) return key;
  if (!strings_) strings_ = Ref::steal(PyDict_New());
  PyObject* known = PyDict_SetDefault(strings_.get(), key, key);
  if (!known) PyErr_Clear();
  return known ? known : key;
}

PyObject* Provenance::canonicalTuple(PyObject* tuple) {
  std::string identity;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    auto address = reinterpret_cast<uintptr_t>(canonical(PyTuple_GET_ITEM(tuple, i)));
    identity.append(reinterpret_cast<const char*>(&address), sizeof address);
  }
  auto [it, added] = tuples_.emplace(std::move(identity), Ref());
  if (added) it->second = Ref::borrow(tuple);
  return it->second.get();
}

bool Provenance::firstGuard(const ir::Guard& guard) {
  uint32_t payload = guard.object.valid() ? guard.object.value : guard.meta.value;
  Key key{static_cast<uint64_t>(guard.kind) << 32 | guard.source.value,
          static_cast<uint64_t>(payload) << 32 | guard.other.value,
          static_cast<uint64_t>(guard.number)};
  return guards_.insert(key).second;
}

bool Provenance::isTypeWritten(PyTypeObject* type, PyObject* name) const {
  if (typeWrites_.empty()) return false;
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++)
    if (typeWrites_.count(Key::of(PyTuple_GET_ITEM(mro, i), name))) return true;
  return false;
}

bool Provenance::sameByNature(const ir::Trace& trace, SourceId first, SourceId second) {
  auto fixed = [&](SourceId id) {
    switch (trace.sources[id.index()].step) {
      case ir::StepKind::Globals:
      case ir::StepKind::Builtins:
      case ir::StepKind::Closure:
        return true;
      default:
        return false;
    }
  };
  return fixed(first) && fixed(second);
}

void Provenance::addFresh(PyObject* function) {
  Ref weak = Ref::steal(PyWeakref_NewRef(function, nullptr));
  if (weak)
    fresh_[function] = std::move(weak);
  else
    PyErr_Clear();
}

bool Provenance::isFresh(PyObject* function) const {
  auto it = fresh_.find(function);
  return it != fresh_.end() && PyWeakref_GET_OBJECT(it->second.get()) == function;
}

void Provenance::forgetWhatMayChange() {
  reads_.clear();
  guards_.clear();
  lookups_.clear();
  globals_.clear();
  entered_.clear();
  std::erase_if(written_, [](const auto& item) { return item.second.atOnce; });
  for (auto& [container, entry] : written_) entry.sealed = true;
}

Provenance::Written* Provenance::written(PyObject* container) {
  auto it = written_.find(container);
  return it == written_.end() ? nullptr : &it->second;
}

Provenance::Written& Provenance::startWriting(PyObject* container, Ref snapshot) {
  forgetReads();
  Written& entry = written_[container];
  if (!entry.keys) {
    entry.snapshot = std::move(snapshot);
    entry.keys = Ref::steal(PySet_New(nullptr));
  }
  return entry;
}

bool Provenance::isWritten(PyObject* container, PyObject* key) {
  Written* entry = written(container);
  if (!entry) return false;
  if (entry->whole) return true;
  int found = PySet_Contains(entry->keys.get(), key);
  if (found < 0) PyErr_Clear();
  return found == 1;
}

bool isConstant(PyObject* object) {
  if (object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented) return true;
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
      type == &PyFloat_Type || type == &PyBytes_Type || type == &PyComplex_Type ||
      type == &PyCode_Type || type == &PyRange_Type)
    return true;
  const WellKnown& known = wellKnown();
  if (type == &PyTuple_Type || type == known.torchSize) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
      if (!isConstant(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return isConstant(slice->start) && isConstant(slice->stop) && isConstant(slice->step);
  }
  if (type == &PyFrozenSet_Type) {
    PyObject* item;
    Py_ssize_t position = 0;
    Py_hash_t hash;
    while (_PySet_NextEntry(object, &position, &item, &hash))
      if (!isConstant(item)) return false;
    return true;
  }
  return type == known.dtype || type == known.device || type == known.layout ||
         type == known.memoryFormat || type == known.qscheme;
}

bool isPinnable(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyFunction_Check(object) || PyType_Check(object) || PyModule_Check(object)) return true;
  if (PyCFunction_Check(object)) {
    // A builtin function; a builtin method bound to a mutable object is an object like others.
    PyObject* self = PyCFunction_GET_SELF(object);
    return !self || PyModule_Check(self) || PyType_Check(self) ||
           wellKnown().isCapsuleLike(Py_TYPE(self));
  }
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type ||
      type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type || type == &PyProperty_Type ||
      type == &PyStaticMethod_Type || type == &PyClassMethod_Type || type == &Py_GenericAliasType)
    return true;
  return wellKnown().isPinnableType(type);
}

}  // namespace glowplug::trace
