#include "cpython/held_object.h"

#include "cpython/constant.h"

namespace glowplug::cpython {

namespace {

PyObject* referent(PyObject* weakref) {
  return reinterpret_cast<PyWeakReference*>(weakref)->wr_object;
}

bool isDescriptor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == &PyMethodDescr_Type || type == &PyMemberDescr_Type ||
         type == &PyGetSetDescr_Type || type == &PyWrapperDescr_Type ||
         type == &PyClassMethodDescr_Type;
}

// What an object that cannot be held weakly wraps; new references.
std::vector<Ref> wrapped(PyObject* object) {
  std::vector<Ref> found;
  PyTypeObject* type = Py_TYPE(object);
  auto take = [&](const char* name) {
    found.push_back(Ref::steal(PyObject_GetAttrString(object, name)));
    if (!found.back()) PyErr_Clear();
  };
  if (type == &PyProperty_Type) {
    for (const char* name : {"fget", "fset", "fdel"}) take(name);
  } else if (type == &PyStaticMethod_Type || type == &PyClassMethod_Type) {
    take("__func__");
  } else if (isDescriptor(object)) {
    found.push_back(Ref::borrow(reinterpret_cast<PyObject*>(PyDescr_TYPE(object))));
    found.push_back(Ref::borrow(PyDescr_NAME(object)));
  } else if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
      found.push_back(Ref::borrow(PyTuple_GET_ITEM(object, i)));
  }
  return found;
}

}  // namespace

bool mayHoldStrongly(PyObject* object) {
  if (isPlainValue(object) || PyCode_Check(object)) return true;
  if (PyType_Check(object))
    return !(reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
  if (PyCFunction_CheckExact(object)) {
    PyObject* self = PyCFunction_GET_SELF(object);
    return !self || PyModule_Check(self) || isPlainValue(self);
  }
  return false;
}

HeldObject HeldObject::of(PyObject* object) {
  HeldObject held;
  if (!object) return held;
  held.address_ = object;
  held.type_ = Py_TYPE(object);
  if (mayHoldStrongly(object)) {
    held.kind_ = Kind::Strong;
    held.ref_ = Ref::borrow(object);
    return held;
  }
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)))
    held.ref_ = Ref::steal(PyWeakref_NewRef(object, nullptr));
  if (held.ref_) {
    held.kind_ = Kind::Weak;
    return held;
  }
  PyErr_Clear();
  held.kind_ = Kind::Parts;
  for (const Ref& part : wrapped(object)) held.parts_.push_back(of(part.get()));
  return held;
}

HeldObject HeldObject::keptElsewhere(PyObject* object) {
  HeldObject held;
  held.kind_ = object ? Kind::Strong : Kind::Nothing;
  held.address_ = object;
  held.type_ = object ? Py_TYPE(object) : nullptr;
  return held;
}

bool HeldObject::is(PyObject* candidate) const {
  if (candidate != address_) return false;
  if (kind_ == Kind::Weak) return referent(ref_.get()) == candidate;
  if (kind_ != Kind::Parts) return true;
  if (Py_TYPE(candidate) != type_) return false;
  if (parts_.empty()) return true;
  std::vector<Ref> now = wrapped(candidate);
  if (now.size() != parts_.size()) return false;
  for (size_t i = 0; i < now.size(); i++)
    if (!parts_[i].is(now[i].get())) return false;
  return true;
}

bool HeldObject::sameAs(const HeldObject& other) const {
  if (kind_ != other.kind_ || address_ != other.address_ || type_ != other.type_) return false;
  if (isDead() || other.isDead() || parts_.size() != other.parts_.size()) return false;
  for (size_t i = 0; i < parts_.size(); i++)
    if (!parts_[i].sameAs(other.parts_[i])) return false;
  return true;
}

bool HeldObject::isDead() const {
  if (kind_ == Kind::Weak) return referent(ref_.get()) != address_;
  for (const HeldObject& part : parts_)
    if (part.isDead()) return true;
  return false;
}

PyObject* HeldObject::get() const {
  if (kind_ == Kind::Strong) return address_;
  return kind_ == Kind::Weak && !isDead() ? address_ : nullptr;
}

PyObject* const* HeldObject::livenessAddress() const {
  if (kind_ != Kind::Weak) return nullptr;
  return &reinterpret_cast<PyWeakReference*>(ref_.get())->wr_object;
}

}  // namespace glowplug::cpython
