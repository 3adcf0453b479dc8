#include "cpython/undo_log.h"

#include "cpython/object_contents.h"

namespace glowplug::cpython {

namespace {

// The class in C under a class made by Python.
PyTypeObject* builtinType(PyTypeObject* type) {
  while (type->tp_flags & Py_TPFLAGS_HEAPTYPE) type = type->tp_base;
  return type;
}

// An attribute's value where object's own way of access keeps it, or nothing.
Ref attributeOf(PyObject* object, PyObject* name) {
  if (PyType_Check(object)) {
    PyObject* dict = reinterpret_cast<PyTypeObject*>(object)->tp_dict;
    return Ref::borrow(PyDict_GetItemWithError(dict, name));
  }
  Ref value = Ref::steal(PyObject_GenericGetAttr(object, name));
  if (!value) PyErr_Clear();
  return value;
}

}  // namespace

int setAttribute(PyObject* object, PyObject* name, PyObject* value) {
  setattrofunc set = builtinType(Py_TYPE(object))->tp_setattro;
  return (set ? set : PyObject_GenericSetAttr)(object, name, value);
}

bool UndoLog::noteContents(PyObject* container) {
  if (!isContainer(container) || !containers_.insert(container).second) return true;
  Ref before = contentsOf(container);
  if (!before) return false;
  places_.push_back({Ref::borrow(container), Ref(), std::move(before), Ref()});
  return true;
}

bool UndoLog::noteAttribute(PyObject* object, PyObject* name) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  bool slot = descriptor && Py_TYPE(descriptor)->tp_descr_set;
  if (!slot && !PyType_Check(object)) {
    Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    return dict && noteContents(dict.get());
  }
  places_.push_back({Ref::borrow(object), Ref::borrow(name), attributeOf(object, name), Ref()});
  return true;
}

void UndoLog::noteCell(PyObject* cell) {
  if (containers_.insert(cell).second)
    places_.push_back({Ref::borrow(cell), Ref(), Ref::borrow(PyCell_GET(cell)), Ref()});
}

namespace {

Ref stateOf(PyObject* object, const Ref& name) {
  if (name) return attributeOf(object, name.get());
  if (PyCell_Check(object)) return Ref::borrow(PyCell_GET(object));
  return contentsOf(object);
}

bool putState(PyObject* object, const Ref& name, const Ref& state) {
  if (name) {
    int status = setAttribute(object, name.get(), state.get());
    if (status < 0 && !state) PyErr_Clear();  // it is absent already
    return status == 0 || !state;
  }
  if (PyCell_Check(object)) return PyCell_Set(object, state.get()) == 0;
  return putContents(object, state.get());
}

}  // namespace

bool UndoLog::undo() {
  for (size_t i = places_.size(); i-- > 0;) {
    Place& place = places_[i];
    place.after = stateOf(place.object.get(), place.name);
    if (PyErr_Occurred() || !putState(place.object.get(), place.name, place.before)) return false;
  }
  return true;
}

bool UndoLog::redo() {
  for (Place& place : places_)
    if (!putState(place.object.get(), place.name, place.after)) return false;
  return true;
}

}  // namespace glowplug::cpython
