#include "cpython/ref.h"
#include "trace/operations.h"

namespace glowplug::trace {

using cpython::Ref;

bool Operations::isMapping(PyObject* subject) {
  return PyType_HasFeature(Py_TYPE(subject), Py_TPFLAGS_MAPPING);
}

bool Operations::isSequence(PyObject* subject) {
  return PyType_HasFeature(Py_TYPE(subject), Py_TPFLAGS_SEQUENCE);
}

namespace {

// False with or without an error: the key was there before, or adding it failed.
bool addOnce(PyObject* seen, PyObject* key) {
  return PySet_Contains(seen, key) == 0 && PySet_Add(seen, key) == 0;
}

const char* typeName(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type)->tp_name; }

// What a class pattern has collected so far.
class ClassMatch {
 public:
  ClassMatch(Operations& operations, PyObject* subject, PyObject* type)
      : operations_(operations),
        subject_(subject),
        type_(type),
        seen_(Ref::steal(PySet_New(nullptr))),
        values_(Ref::steal(PyList_New(0))) {}

  bool started() const { return seen_ && values_; }

  // False: no match, or an error.
  bool positional(Py_ssize_t count);
  bool attribute(PyObject* name);
  PyObject* tuple() const { return PyList_AsTuple(values_.get()); }

 private:
  bool append(PyObject* value) { return PyList_Append(values_.get(), value) == 0; }
  Ref matchArgs(bool* matchSelf);

  Operations& operations_;
  PyObject* subject_;
  PyObject* type_;
  Ref seen_;
  Ref values_;
};

// __match_args__, or an empty tuple; *matchSelf: the one positional pattern is the subject itself.
Ref ClassMatch::matchArgs(bool* matchSelf) {
  static PyObject* key = PyUnicode_InternFromString("__match_args__");
  Ref args = Ref::steal(operations_.loadAttr(type_, key));
  if (args) {
    if (PyTuple_CheckExact(args.get())) return args;
    PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", typeName(type_),
                 Py_TYPE(args.get())->tp_name);
    return Ref();
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Ref();
  PyErr_Clear();
  *matchSelf = PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type_), _Py_TPFLAGS_MATCH_SELF);
  return Ref::steal(PyTuple_New(0));
}

bool ClassMatch::positional(Py_ssize_t count) {
  bool matchSelf = false;
  Ref args = matchArgs(&matchSelf);
  if (!args) return false;
  const Py_ssize_t allowed = matchSelf ? 1 : PyTuple_GET_SIZE(args.get());
  if (allowed < count) {
    PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%zd given)",
                 typeName(type_), allowed, allowed == 1 ? "" : "s", count);
    return false;
  }
  if (matchSelf) return append(subject_);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* name = PyTuple_GET_ITEM(args.get(), i);
    if (!PyUnicode_CheckExact(name)) {
      PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)",
                   Py_TYPE(name)->tp_name);
      return false;
    }
    if (!attribute(name)) return false;
  }
  return true;
}

bool ClassMatch::attribute(PyObject* name) {
  if (!addOnce(seen_.get(), name)) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R",
                   typeName(type_), name);
    return false;
  }
  Ref value = Ref::steal(operations_.loadAttr(subject_, name));
  if (value) return append(value.get());
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return false;
}

}  // namespace

PyObject* Operations::matchClass(PyObject* subject, PyObject* type, Py_ssize_t positional,
                                 PyObject* names) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a type");
    return nullptr;
  }
  if (PyObject_IsInstance(subject, type) <= 0) return nullptr;
  ClassMatch match(*this, subject, type);
  if (!match.started()) return nullptr;
  if (positional && !match.positional(positional)) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
    if (!match.attribute(PyTuple_GET_ITEM(names, i))) return nullptr;
  return match.tuple();
}

PyObject* Operations::matchKeys(PyObject* mapping, PyObject* keys) {
  static PyObject* getName = PyUnicode_InternFromString("get");
  const Py_ssize_t count = PyTuple_GET_SIZE(keys);
  if (!count) return PyTuple_New(0);
  // get(key, default) finds a value in one step, and makes no key in a defaultdict.
  PyObject* get = nullptr;
  const int unbound = _PyObject_GetMethod(mapping, getName, &get);
  Ref method = Ref::steal(get);
  if (!method) return nullptr;
  Ref seen = Ref::steal(PySet_New(nullptr));
  Ref missing = Ref::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  Ref values = Ref::steal(PyTuple_New(count));
  if (!seen || !missing || !values) return nullptr;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    if (!addOnce(seen.get(), key)) {
      if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
      return nullptr;
    }
    PyObject* args[] = {mapping, key, missing.get()};
    Ref value = Ref::steal(unbound ? PyObject_Vectorcall(method.get(), args, 3, nullptr)
                                   : PyObject_Vectorcall(method.get(), args + 1, 2, nullptr));
    if (!value) return nullptr;
    if (value.get() == missing.get()) return Py_NewRef(Py_None);
    PyTuple_SET_ITEM(values.get(), i, value.release());
  }
  return values.release();
}

}  // namespace glowplug::trace
