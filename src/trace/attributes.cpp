// Attribute access: what the real protocol reads is guarded before the real access runs.
//
// Python's own protocol is followed rather than any idea of what a module is: the type's MRO
// (guarded by look-ups on the pinned class), then the instance dict (guarded by key), then
// __getattr__, which is Python code and is evaluated like any other.

#include <fmt/format.h>

#include "cpython/modules.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

namespace {

bool named(PyObject* name, const char* text) {
  return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

// The first three fields of a super object (Objects/typeobject.c).
struct SuperObject {
  PyObject_HEAD PyTypeObject* type;
  PyObject* object;
  PyTypeObject* objectType;
};

// A look-up's outcome as payload of AttrIs: (name, value), the value weakly held where it can be.
Ref attrPayload(PyObject* name, PyObject* value) {
  Ref held;
  if (!isConstant(value) && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value)))
    held = Ref::steal(PyWeakref_NewRef(value, nullptr));
  if (!held) {
    PyErr_Clear();
    held = Ref::borrow(value);
  }
  return Ref::steal(PyTuple_Pack(2, name, held.get()));
}

PyObject* instanceDict(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  return slot ? *slot : nullptr;
}

bool hasInstanceDict(PyObject* object) { return _PyObject_GetDictPtr(object) != nullptr; }

bool isPythonDescriptor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return isPythonClass(type) && (type->tp_descr_get || type->tp_descr_set) && !isPinnable(object) &&
         !isConstant(object);
}

}  // namespace

PyObject* Recorder::typeAttr(PyTypeObject* type, PyObject* name) {
  PyObject* value = _PyType_Lookup(type, name);
  if (!active_ || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return value;
  if (provenance_.isFresh(reinterpret_cast<PyObject*>(type))) return value;
  name = provenance_.canonical(name);
  if (provenance_.isTypeWritten(type, name) || !provenance_.firstTypeLookup(type, name))
    return value;
  SourceId source = pinned(reinterpret_cast<PyObject*>(type));
  if (value)
    guard(PredicateKind::AttrIs, source, attrPayload(name, value).get());
  else
    guard(PredicateKind::AttrMissing, source, name);
  // C code hands a descriptor of the program's own to its __get__ or __set__.
  if (value && isPythonDescriptor(value)) noteLoad(child(source, StepKind::TypeAttr, name), value);
  return value;
}

// The place in the instance dict that an access reads, guarded. found: the dict has the name.
SourceId Recorder::readInstanceDict(PyObject* object, SourceId source, PyObject* name,
                                    bool* found) {
  *found = false;
  PyObject* dict = instanceDict(object);
  if (!dict) {
    if (!hasInstanceDict(object)) return SourceId();
    // No dict has been made yet: it will be when a guard reads it, and stays empty.
    dict = PyObject_GenericGetDict(object, nullptr);
    if (!dict) return PyErr_Clear(), SourceId();
    Py_DECREF(dict);
  }
  PyObject* value = PyDict_GetItemWithError(dict, name);
  *found = value != nullptr;
  if (isWritten(dict, name)) return SourceId();
  SourceId dictSource = child(source, StepKind::InstanceDict);
  if (value) return child(dictSource, StepKind::DictItem, name);
  guard(PredicateKind::Missing, dictSource, provenance_.canonical(name));
  return SourceId();
}

// Guards what reading object.name depends on. Returns the place its value is loaded from, or
// nothing when the value needs no source (methods, values computed by Python code, fresh objects).
SourceId Recorder::readAttr(PyObject* object, PyObject* name) {
  if (PyType_Check(object)) return readTypeAttr(object, name);
  if (Py_IS_TYPE(object, &PySuper_Type)) return readSuperAttr(object, name);
  PyTypeObject* type = Py_TYPE(object);
  SourceId source = sourceOf(object);
  if (!hasGenericGetAttr(type)) {
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
      static PyObject* getattribute = PyUnicode_InternFromString("__getattribute__");
      PyObject* found = typeAttr(type, getattribute);
      if (found && PyFunction_Check(found)) return SourceId();  // evaluated
    }
    return source.valid() ? child(source, StepKind::GetAttr, name) : SourceId();
  }
  return readGenericAttr(object, source, name);
}

// object's own way: a data descriptor of the class, the instance dict, anything else of the class.
SourceId Recorder::readGenericAttr(PyObject* object, SourceId source, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* descriptor = typeAttr(type, name);
  descrgetfunc get = descriptor ? Py_TYPE(descriptor)->tp_descr_get : nullptr;
  if (get && Py_TYPE(descriptor)->tp_descr_set) {
    if (!source.valid() || Py_IS_TYPE(descriptor, &PyProperty_Type)) return SourceId();
    if (named(name, "__dict__")) return child(source, StepKind::InstanceDict);
    if (named(name, "__class__")) return SourceId();
    if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type) && (type->tp_flags & Py_TPFLAGS_HEAPTYPE))
      return isWritten(object, provenance_.canonical(name))
                 ? SourceId()
                 : child(source, StepKind::SlotAttr, name);
    if (PyFunction_Check(object) && named(name, "__globals__"))
      return child(source, StepKind::Globals);
    if (Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_HEAPTYPE)
      return SourceId();  // __get__ in Python
    return child(source, StepKind::GetAttr, name);
  }
  if (source.valid()) {
    bool found = false;
    SourceId place = readInstanceDict(object, source, name, &found);
    if (found) return place;
  }
  if (!descriptor) {
    static PyObject* getattr = PyUnicode_InternFromString("__getattr__");
    typeAttr(type, getattr);
    return SourceId();
  }
  if (get || isConstant(descriptor) || isPinnable(descriptor)) return SourceId();
  if (provenance_.isTypeWritten(type, provenance_.canonical(name))) return SourceId();
  return child(pinned(reinterpret_cast<PyObject*>(type)), StepKind::TypeAttr, name);
}

SourceId Recorder::readTypeAttr(PyObject* object, PyObject* name) {
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  PyTypeObject* meta = Py_TYPE(object);
  PyObject* onMeta = typeAttr(meta, name);
  if (named(name, "__dict__")) classDicts_.insert(type->tp_dict);
  if (onMeta && Py_TYPE(onMeta)->tp_descr_get && Py_TYPE(onMeta)->tp_descr_set) return SourceId();
  PyObject* value = typeAttr(type, name);
  if (!value || Py_TYPE(value)->tp_descr_get || isConstant(value) || isPinnable(value))
    return SourceId();
  if (provenance_.isTypeWritten(type, provenance_.canonical(name))) return SourceId();
  return child(pinned(object), StepKind::TypeAttr, name);
}

// super(): the look-up starts after one class of the MRO. Guarded on the class that follows, whose
// own MRO gives the same answer under single inheritance; where it does not, the recording refuses.
SourceId Recorder::readSuperAttr(PyObject* super, PyObject* name) {
  auto* self = reinterpret_cast<SuperObject*>(super);
  PyTypeObject* start = self->objectType;
  if (!start || named(name, "__class__")) return SourceId();
  PyObject* mro = start->tp_mro;
  Py_ssize_t count = mro ? PyTuple_GET_SIZE(mro) : 0, i = 0;
  while (i < count && PyTuple_GET_ITEM(mro, i) != reinterpret_cast<PyObject*>(self->type)) i++;
  static PyObject* mroName = PyUnicode_InternFromString("__mro__");
  typeAttr(start, mroName);
  for (i++; i < count; i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    PyObject* own = base->tp_dict ? PyDict_GetItemWithError(base->tp_dict, name) : nullptr;
    PyObject* seen = typeAttr(base, name);
    if (own) {
      if (Py_TYPE(own)->tp_descr_get || isConstant(own) || isPinnable(own)) return SourceId();
      return child(pinned(reinterpret_cast<PyObject*>(base)), StepKind::TypeAttr, name);
    }
    (void)seen;
  }
  return SourceId();
}

PyObject* Recorder::loadAttr(PyObject* object, PyObject* name) {
  endBefore();
  if (!active_) return Operations::loadAttr(object, name);
  if (!scalars_.empty()) useScalar(object);
  if (aten::isTensor(object)) return tensorAttr(object, name);
  if (provenance_.find(object).valid() && provenance_.wasRead(object, name))
    return Operations::loadAttr(object, name);
  SourceId place = readAttr(object, name);
  PyObject* result = Operations::loadAttr(object, name);
  if (result && place.valid()) noteLoad(place, result);
  return audited(result, "attribute", name);
}

int Recorder::loadMethod(PyObject* object, PyObject* name, PyObject** method) {
  if (!active_) return Operations::loadMethod(object, name, method);
  if (!scalars_.empty()) useScalar(object);
  if (aten::isTensor(object)) {
    *method = tensorAttr(object, name);
    return *method ? 0 : -1;
  }
  if (provenance_.find(object).valid() && provenance_.wasRead(object, name))
    return Operations::loadMethod(object, name, method);
  SourceId place = readAttr(object, name);
  int unbound = Operations::loadMethod(object, name, method);
  if (unbound == 0 && place.valid()) noteLoad(place, *method);
  if (unbound == 0) audited(*method, "attribute", name);
  return unbound;
}

PyObject* Recorder::loadSpecial(PyObject* object, PyObject* name) {
  if (active_) typeAttr(Py_TYPE(object), name);
  return Operations::loadSpecial(object, name);
}

// Attributes of tensors. Metadata is pinned by the tensor's guard, or follows from it; only sizes
// of data-dependent tensors need a guard of their own. T, mT, real... arrive as operators.
PyObject* Recorder::tensorAttr(PyObject* tensor, PyObject* name) {
  PyObject* descriptor = typeAttr(Py_TYPE(tensor), name);
  SourceId source = provenance_.find(tensor);
  bool getset = descriptor && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type);
  if (getset) {
    if (named(name, "shape") || named(name, "nbytes")) useSizes(tensor);
    if (named(name, "grad") || named(name, "_grad")) {
      PyObject* result = ops_->readGrad(tensor);
      if (!result || !active_) return result;
      if (withGradient_.count(tensor)) {
        if (result != Py_None) ops_->addAlias(result, "grad", tensor);
        return result;
      }
      // Known to be there, unless something unknown has run since.
      bool found = result != Py_None && epoch_ == 0 && ops_->find(result).valid();
      if (found || isWritten(tensor, provenance_.canonical(name))) return result;
      if (source.valid())
        noteLoad(child(source, StepKind::TensorGrad), result);
      else if (result != Py_None)
        refuse("unguardable", "the gradient of a tensor made in this call");
      return result;
    }
    if (named(name, "data")) {
      PyObject* result = Operations::loadAttr(tensor, name);
      if (result && active_) ops_->addAlias(result, "data", tensor);
      return result;
    }
    if (named(name, "grad_fn")) return readGradFn(tensor, source, name);
    if (named(name, "_version") || named(name, "_base") || named(name, "_cdata"))
      refuse("unguardable", fmt::format("tensor.{}", PyUnicode_AsUTF8(name)));
    return Operations::loadAttr(tensor, name);
  }
  SourceId place;
  if (source.valid() && hasInstanceDict(tensor)) {
    bool found = false;
    place = readInstanceDict(tensor, source, name, &found);
  }
  PyObject* result = Operations::loadAttr(tensor, name);
  if (result && place.valid()) noteLoad(place, result);
  return result;
}

int Recorder::storeTensorAttr(PyObject* tensor, PyObject* name, PyObject* value) {
  PyObject* descriptor = typeAttr(Py_TYPE(tensor), name);
  if (descriptor && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
    bool known = named(name, "grad") || named(name, "data") || named(name, "requires_grad");
    if (!known || !value) {
      refuse("unsupported_write", fmt::format("tensor.{} = ...", PyUnicode_AsUTF8(name)));
      return Operations::storeAttr(tensor, name, value);
    }
    if (limits_.undoable && sourceOf(tensor).valid()) ops_->addInput(tensor, sourceOf(tensor));
    int status = Operations::storeAttr(tensor, name, value);
    if (status < 0 || !active_) return status;
    if (named(name, "data")) {
      ops_->addWrite("set_data", tensor, value);
    } else if (named(name, "grad")) {
      Provenance::Written& written = provenance_.startWriting(tensor, Ref());
      PySet_Add(written.keys.get(), provenance_.canonical(name));
      written.atOnce = true;
      ops_->addWrite("set_grad", tensor, value);
    }
    return status;  // requires_grad: the operator recorder finds it when the tensor is next used
  }
  PyObject* dict = PyObject_GenericGetDict(tensor, nullptr);
  if (dict) {
    beforeWrite(dict);
    wroteKey(dict, name);
    Py_DECREF(dict);
  } else {
    PyErr_Clear();
  }
  int status = Operations::storeAttr(tensor, name, value);
  if (status == 0) {
    if (value)
      emitEffect(ir::EffectKind::SetAttr, {tensor, name, value});
    else
      emitEffect(ir::EffectKind::DelAttr, {tensor, name});
  }
  return status;
}

// Before a write by object's own __setattr__ (or type's, or a module's) to something from outside.
// True: it is to be noted when it has succeeded.
bool Recorder::beforeAttrWrite(PyObject* object, PyObject* name, PyObject* value) {
  bool known = PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object);
  if (!active_ || !(known ? isSourced(object) : provenance_.find(object).valid())) return false;
  if (limits_.undoable && !undo_.noteAttribute(object, name)) PyErr_Clear();
  auto refused = [&](const std::string& what) {
    refuse("unsupported_write", what);
    return false;
  };
  const char* text = PyUnicode_AsUTF8(name);
  if (PyType_Check(object)) return beforeClassWrite(object, name);
  PyObject* descriptor = typeAttr(Py_TYPE(object), name);
  bool slot = descriptor && Py_TYPE(descriptor)->tp_descr_set;
  if (slot && !Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
    return refused(
        fmt::format("{}.{} is set through a C descriptor", Py_TYPE(object)->tp_name, text));
  if (slot) {
    bool container = PyDict_Check(object) || PyList_Check(object) || PyAnySet_Check(object);
    if (container) return refused(fmt::format("slot {}.{} is set", Py_TYPE(object)->tp_name, text));
    SourceId place = value ? SourceId() : readAttr(object, name);
    Ref before = place.valid() ? Ref::steal(PyObject_GenericGetAttr(object, name)) : Ref();
    if (before) noteLoad(place, before.get());
    PyErr_Clear();
    return active_;
  }
  Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) return PyErr_Clear(), refused(Py_TYPE(object)->tp_name);
  if (!provenance_.find(dict.get()).valid())
    provenance_.remember(dict.get(), child(sourceOf(object), StepKind::InstanceDict));
  // Deleting raises where there is nothing to delete.
  if (!value) readKey(dict.get(), name);
  beforeWrite(dict.get());
  return active_;
}

// A class attribute. The class has that name already in its own dict, or a look-up that found it
// further up, or nowhere, is among the guards.
bool Recorder::beforeClassWrite(PyObject* type, PyObject* name) {
  auto* object = reinterpret_cast<PyTypeObject*>(type);
  // What the protocols of the language look up is kept in slots, which no guard looks at.
  const char* text = PyUnicode_AsUTF8(name);
  if (text && text[0] == '_' && text[1] == '_') {
    refuse("unsupported_write", fmt::format("{}.{} is set", object->tp_name, text));
    return false;
  }
  typeAttr(object, provenance_.canonical(name));
  return active_;
}

void Recorder::afterAttrWrite(PyObject* object, PyObject* name, PyObject* value) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (PyType_Check(object)) {
    provenance_.writeType(reinterpret_cast<PyTypeObject*>(object), provenance_.canonical(name));
  } else if (descriptor && Py_TYPE(descriptor)->tp_descr_set) {
    Provenance::Written& entry = provenance_.startWriting(object, Ref());
    if (PySet_Add(entry.keys.get(), provenance_.canonical(name)) < 0) PyErr_Clear();
  } else {
    Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!dict) return PyErr_Clear();
    wroteKey(dict.get(), name);
  }
  if (value)
    emitEffect(ir::EffectKind::SetAttr, {object, name, value});
  else
    emitEffect(ir::EffectKind::DelAttr, {object, name});
}

// Where a class has not object's way of writing attributes itself. One that defines one of
// __setattr__ and __delattr__ inherits the other, mostly from object.
Recorder::AttrWrite Recorder::attrWrite(PyTypeObject* type, PyObject* value) {
  static PyObject* set = PyUnicode_InternFromString("__setattr__");
  static PyObject* del = PyUnicode_InternFromString("__delattr__");
  PyObject* method = typeAttr(type, value ? set : del);
  if (!method || !Py_IS_TYPE(method, &PyWrapperDescr_Type)) return AttrWrite::Evaluated;
  const bool objects = reinterpret_cast<PyDescrObject*>(method)->d_type == &PyBaseObject_Type;
  return objects ? AttrWrite::Direct : AttrWrite::InC;
}

// A class in C that writes attributes in its own way (decimal.Context) does so at each replay.
int Recorder::storeForeignAttr(PyObject* object, PyObject* name, PyObject* value) {
  static PyObject* set = cpython::moduleAttribute("builtins", "setattr");
  static PyObject* del = cpython::moduleAttribute("builtins", "delattr");
  if (!isForeign(object)) {
    refuse("unsupported_write", fmt::format("an attribute of a {}", Py_TYPE(object)->tp_name));
    return Operations::storeAttr(object, name, value);
  }
  return Ref::steal(value ? callForeign(set, {object, name, value})
                          : callForeign(del, {object, name}))
             ? 0
             : -1;
}

int Recorder::storeAttr(PyObject* object, PyObject* name, PyObject* value) {
  if (stopping_) return stop(), -1;
  if (!active_) return Operations::storeAttr(object, name, value);
  if (aten::isTensor(object)) return storeTensorAttr(object, name, value);
  PyTypeObject* type = Py_TYPE(object);
  bool direct = hasGenericSetAttr(type) || PyType_Check(object) || PyModule_Check(object);
  if (direct && !PyType_Check(object)) {
    PyObject* descriptor = typeAttr(type, name);
    if (descriptor && Py_TYPE(descriptor)->tp_descr_set &&
        (Py_IS_TYPE(descriptor, &PyProperty_Type) ||
         (Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_HEAPTYPE)))
      direct = false;  // a setter in Python, evaluated
  }
  if (!direct) {
    const AttrWrite way = attrWrite(type, value);
    if (way == AttrWrite::InC) return storeForeignAttr(object, name, value);
    direct = way == AttrWrite::Direct;
  }
  bool noted = direct && beforeAttrWrite(object, name, value);
  int status = Operations::storeAttr(object, name, value);
  if (noted && status == 0) afterAttrWrite(object, name, value);
  return status;
}

}  // namespace glowplug::trace
