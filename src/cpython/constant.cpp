#include "cpython/constant.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cpython/ref.h"

namespace glowplug::cpython {

namespace {

bool isTorchType(PyTypeObject* type, std::string_view name) {
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && name == type->tp_name;
}

bool isTorchValue(PyTypeObject* type) {
  return std::strncmp(type->tp_name, "torch.", 6) == 0 &&
         (isTorchType(type, "torch.dtype") || isTorchType(type, "torch.device") ||
          isTorchType(type, "torch.layout") || isTorchType(type, "torch.memory_format") ||
          isTorchType(type, "torch.qscheme"));
}

bool isTupleLike(PyTypeObject* type) {
  return type == &PyTuple_Type || isTorchType(type, "torch.Size");
}

bool isScalar(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented ||
         type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyComplex_Type || type == &PyUnicode_Type || type == &PyBytes_Type;
}

bool sameBits(const void* a, const void* b, size_t size) { return std::memcmp(a, b, size) == 0; }

bool tuplesEqual(PyObject* a, PyObject* b) {
  if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++)
    if (!constantsEqual(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

bool slicesEqual(PyObject* a, PyObject* b) {
  auto* x = reinterpret_cast<PySliceObject*>(a);
  auto* y = reinterpret_cast<PySliceObject*>(b);
  return constantsEqual(x->start, y->start) && constantsEqual(x->stop, y->stop) &&
         constantsEqual(x->step, y->step);
}

bool rangesEqual(PyObject* a, PyObject* b) {
  for (const char* name : {"start", "stop", "step"}) {
    Ref x = Ref::steal(PyObject_GetAttrString(a, name));
    Ref y = Ref::steal(PyObject_GetAttrString(b, name));
    if (!x || !y) return PyErr_Clear(), false;
    if (!constantsEqual(x.get(), y.get())) return false;
  }
  return true;
}

bool equalByOperator(PyObject* a, PyObject* b) {
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

}  // namespace

bool isPlainValue(PyObject* object) {
  if (isScalar(object)) return true;
  PyTypeObject* type = Py_TYPE(object);
  if (isTupleLike(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
      if (!isPlainValue(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  if (type == &PyFrozenSet_Type) {
    Py_ssize_t position = 0;
    PyObject* item;
    Py_hash_t hash;
    while (_PySet_NextEntry(object, &position, &item, &hash))
      if (!isPlainValue(item)) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return isPlainValue(slice->start) && isPlainValue(slice->stop) && isPlainValue(slice->step);
  }
  return type == &PyRange_Type || isTorchValue(type);
}

bool constantsEqual(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type)
    return equalByOperator(a, b);
  if (type == &PyFloat_Type)
    return sameBits(&reinterpret_cast<PyFloatObject*>(a)->ob_fval,
                    &reinterpret_cast<PyFloatObject*>(b)->ob_fval, sizeof(double));
  if (type == &PyComplex_Type)
    return sameBits(&reinterpret_cast<PyComplexObject*>(a)->cval,
                    &reinterpret_cast<PyComplexObject*>(b)->cval, sizeof(Py_complex));
  if (isTupleLike(type)) return tuplesEqual(a, b);
  if (type == &PyFrozenSet_Type) return setsEqual(a, b);
  if (type == &PySlice_Type) return slicesEqual(a, b);
  if (type == &PyRange_Type) return rangesEqual(a, b);
  return isTorchType(type, "torch.device") && equalByOperator(a, b);
}

PyObject* distinctCopy(PyObject* value) {
  if (PyFloat_CheckExact(value)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(value));
  if (PyLong_CheckExact(value)) {
    // Not PyLong_From...: that gives the shared objects of small numbers.
    auto* number = reinterpret_cast<PyLongObject*>(value);
    Py_ssize_t digits = std::abs(Py_SIZE(number));
    PyLongObject* copy = _PyLong_New(std::max<Py_ssize_t>(digits, 1));
    if (!copy) return PyErr_Clear(), nullptr;
    Py_SET_SIZE(copy, Py_SIZE(number));
    copy->ob_digit[0] = 0;
    std::copy_n(number->ob_digit, digits, copy->ob_digit);
    return reinterpret_cast<PyObject*>(copy);
  }
  if (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) > 1) {
    PyObject* copy = PyUnicode_FromKindAndData(PyUnicode_KIND(value), PyUnicode_DATA(value),
                                               PyUnicode_GET_LENGTH(value));
    if (!copy) PyErr_Clear();
    return copy;
  }
  return nullptr;
}

bool setsEqual(PyObject* set, PyObject* frozen) {
  if (PySet_GET_SIZE(set) != PySet_GET_SIZE(frozen)) return false;
  Py_ssize_t position = 0;
  PyObject* item;
  Py_hash_t hash;
  while (_PySet_NextEntry(set, &position, &item, &hash)) {
    Py_ssize_t other = 0;
    PyObject* candidate;
    Py_hash_t otherHash;
    bool found = false;
    while (!found && _PySet_NextEntry(frozen, &other, &candidate, &otherHash))
      found = hash == otherHash && constantsEqual(item, candidate);
    if (!found) return false;
  }
  return true;
}

}  // namespace glowplug::cpython
