#include "trace/operations.h"

#include <array>

#include "cpython/ref.h"
#include "cpython/special_lookup.h"
#include "trace/messages.h"

// What CPython 3.11's evaluator does, with its messages. Imports and patterns are in
// operations_imports.cpp and operations_patterns.cpp.
namespace glowplug::trace {

using cpython::FrameView;
using cpython::Ref;

void Operations::enterFrame(FrameView, bool) {}
void Operations::leaveFrame(FrameView, PyObject*, bool) {}
void Operations::delegateFrame(FrameView) {}
void Operations::madeFunction(PyObject*) {}
void Operations::usedAsKey(PyObject*) {}

PyObject* Operations::buildString(PyObject* const* pieces, Py_ssize_t count) {
  static PyObject* empty = PyUnicode_InternFromString("");
  return _PyUnicode_JoinArray(empty, const_cast<PyObject**>(pieces), count);
}

namespace {

// New reference, or nullptr, with an error only when looking failed.
PyObject* lookUp(PyObject* mapping, PyObject* key) {
  if (PyDict_CheckExact(mapping)) return Py_XNewRef(PyDict_GetItemWithError(mapping, key));
  PyObject* value = PyObject_GetItem(mapping, key);
  if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

PyObject* globalOrBuiltin(FrameView frame, PyObject* name) {
  PyObject* value = lookUp(frame.globals(), name);
  if (!value && !PyErr_Occurred()) value = lookUp(frame.builtins(), name);
  if (!value && !PyErr_Occurred()) raiseNameError(name);
  return value;
}

}  // namespace

PyObject* Operations::loadGlobal(FrameView frame, PyObject* name) {
  return globalOrBuiltin(frame, name);
}

PyObject* Operations::loadName(FrameView frame, PyObject* name) {
  if (!frame.locals()) {
    PyErr_Format(PyExc_SystemError, "no locals when loading %R", name);
    return nullptr;
  }
  PyObject* value = lookUp(frame.locals(), name);
  if (value || PyErr_Occurred()) return value;
  return globalOrBuiltin(frame, name);
}

int Operations::storeName(FrameView frame, PyObject* name, PyObject* value) {
  PyObject* locals = frame.locals();
  if (!locals) {
    PyErr_Format(PyExc_SystemError,
                 value ? "no locals found when storing %R" : "no locals when deleting %R", name);
    return -1;
  }
  if (value)
    return PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value)
                                     : PyObject_SetItem(locals, name, value);
  if (PyObject_DelItem(locals, name) == 0) return 0;
  raiseNameError(name);
  return -1;
}

int Operations::storeGlobal(FrameView frame, PyObject* name, PyObject* value) {
  if (value) return PyDict_SetItem(frame.globals(), name, value);
  if (PyDict_DelItem(frame.globals(), name) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_KeyError)) raiseNameError(name);
  return -1;
}

PyObject* Operations::loadCell(PyObject* cell) { return Py_XNewRef(PyCell_GET(cell)); }

void Operations::storeCell(PyObject* cell, PyObject* value) {
  PyObject* old = PyCell_GET(cell);
  PyCell_SET(cell, Py_XNewRef(value));
  Py_XDECREF(old);
}

PyObject* Operations::loadBuildClass(FrameView frame) {
  static PyObject* name = PyUnicode_InternFromString("__build_class__");
  PyObject* value = lookUp(frame.builtins(), name);
  if (!value && !PyErr_Occurred()) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
  return value;
}

PyObject* Operations::loadAttr(PyObject* object, PyObject* name) {
  return PyObject_GetAttr(object, name);
}

int Operations::loadMethod(PyObject* object, PyObject* name, PyObject** method) {
  *method = nullptr;
  int unbound = _PyObject_GetMethod(object, name, method);
  return *method ? unbound : -1;
}

int Operations::storeAttr(PyObject* object, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(object, name, value);
}

PyObject* Operations::loadItem(PyObject* container, PyObject* key) {
  return PyObject_GetItem(container, key);
}

int Operations::storeItem(PyObject* container, PyObject* key, PyObject* value) {
  return value ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key);
}

namespace {

PyObject* power(PyObject* base, PyObject* exponent) {
  return PyNumber_Power(base, exponent, Py_None);
}

PyObject* inPlacePower(PyObject* base, PyObject* exponent) {
  return PyNumber_InPlacePower(base, exponent, Py_None);
}

// In the order of BINARY_OP's oparg (opcode.h, NB_*).
constexpr std::array<binaryfunc, 26> kBinary = {
    PyNumber_Add,
    PyNumber_And,
    PyNumber_FloorDivide,
    PyNumber_Lshift,
    PyNumber_MatrixMultiply,
    PyNumber_Multiply,
    PyNumber_Remainder,
    PyNumber_Or,
    power,
    PyNumber_Rshift,
    PyNumber_Subtract,
    PyNumber_TrueDivide,
    PyNumber_Xor,
    PyNumber_InPlaceAdd,
    PyNumber_InPlaceAnd,
    PyNumber_InPlaceFloorDivide,
    PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceMultiply,
    PyNumber_InPlaceRemainder,
    PyNumber_InPlaceOr,
    inPlacePower,
    PyNumber_InPlaceRshift,
    PyNumber_InPlaceSubtract,
    PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceXor,
};

}  // namespace

PyObject* Operations::binary(int op, PyObject* left, PyObject* right) {
  return kBinary[static_cast<size_t>(op)](left, right);
}

PyObject* Operations::compare(int op, PyObject* left, PyObject* right) {
  // As CPython's specialised instructions do, which take no level of recursion for it.
  PyTypeObject* type = Py_TYPE(left);
  if (type == Py_TYPE(right) &&
      (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type))
    return type->tp_richcompare(left, right, op);
  return PyObject_RichCompare(left, right, op);
}

PyObject* Operations::positive(PyObject* value) { return PyNumber_Positive(value); }
PyObject* Operations::negative(PyObject* value) { return PyNumber_Negative(value); }
PyObject* Operations::invert(PyObject* value) { return PyNumber_Invert(value); }
int Operations::truth(PyObject* value) { return PyObject_IsTrue(value); }
bool Operations::is(PyObject* left, PyObject* right) { return left == right; }

int Operations::contains(PyObject* container, PyObject* item) {
  return PySequence_Contains(container, item);
}

PyObject* Operations::iter(PyObject* iterable) { return PyObject_GetIter(iterable); }

PyObject* Operations::next(PyObject* iterator) {
  PyObject* item = (*Py_TYPE(iterator)->tp_iternext)(iterator);
  if (!item && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
  return item;
}

PyObject* Operations::yieldFromIter(PyObject* iterable, FrameView frame) {
  if (PyCoro_CheckExact(iterable)) {
    if (frame.code()->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) return Py_NewRef(iterable);
    PyErr_SetString(PyExc_TypeError,
                    "cannot 'yield from' a coroutine object in a non-coroutine generator");
    return nullptr;
  }
  return PyGen_CheckExact(iterable) ? Py_NewRef(iterable) : PyObject_GetIter(iterable);
}

PySendResult Operations::send(PyObject* receiver, PyObject* value, PyObject** result) {
  return PyIter_Send(receiver, value, result);
}

namespace {

// Takes exactly `count` items; the number taken, or -1 with an error when iterating failed.
int takeItems(PyObject* iterator, int count, PyObject** out) {
  for (int i = 0; i < count; i++) {
    out[i] = PyIter_Next(iterator);
    if (out[i]) continue;
    if (!PyErr_Occurred()) return i;
    while (i > 0) Py_DECREF(out[--i]);
    return -1;
  }
  return count;
}

void dropItems(PyObject** items, int count) {
  for (int i = 0; i < count; i++) Py_CLEAR(items[i]);
}

// The starred target and what follows it. Consumes the first `before` items on failure.
int unpackRest(PyObject* iterator, int before, int after, PyObject** out) {
  Ref rest = Ref::steal(PySequence_List(iterator));
  if (!rest) {
    dropItems(out, before);
    return -1;
  }
  const Py_ssize_t size = PyList_GET_SIZE(rest.get());
  if (size < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)",
                 before + after, before + size);
    dropItems(out, before);
    return -1;
  }
  // The last items move from the list to their targets.
  for (int i = 0; i < after; i++)
    out[before + 1 + i] = PyList_GET_ITEM(rest.get(), size - after + i);
  Py_SET_SIZE(rest.get(), size - after);
  out[before] = rest.release();
  return 0;
}

int unpackIterator(PyObject* iterator, int before, int after, PyObject** out) {
  int taken = takeItems(iterator, before, out);
  if (taken < 0) return -1;
  if (taken < before) {
    dropItems(out, taken);
    if (after < 0)
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", before,
                   taken);
    else
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)",
                   before + after, taken);
    return -1;
  }
  if (after >= 0) return unpackRest(iterator, before, after, out);
  Ref extra = Ref::steal(PyIter_Next(iterator));
  if (!extra && !PyErr_Occurred()) return 0;
  if (extra) PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
  dropItems(out, before);
  return -1;
}

}  // namespace

int Operations::unpack(PyObject* iterable, int before, int after, PyObject** out) {
  const bool tuple = PyTuple_CheckExact(iterable);
  if (after < 0 && (tuple || PyList_CheckExact(iterable)) && Py_SIZE(iterable) == before) {
    PyObject** items = tuple ? reinterpret_cast<PyTupleObject*>(iterable)->ob_item
                             : reinterpret_cast<PyListObject*>(iterable)->ob_item;
    for (int i = 0; i < before; i++) out[i] = Py_NewRef(items[i]);
    return 0;
  }
  Ref iterator = Ref::steal(PyObject_GetIter(iterable));
  if (iterator) return unpackIterator(iterator.get(), before, after, out);
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(iterable)->tp_iter &&
      !PySequence_Check(iterable))
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object",
                 Py_TYPE(iterable)->tp_name);
  return -1;
}

int Operations::listExtend(PyObject* list, PyObject* iterable) {
  Ref none = Ref::steal(_PyList_Extend(reinterpret_cast<PyListObject*>(list), iterable));
  if (none) return 0;
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(iterable)->tp_iter &&
      !PySequence_Check(iterable)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s",
                 Py_TYPE(iterable)->tp_name);
  }
  return -1;
}

int Operations::setUpdate(PyObject* set, PyObject* iterable) {
  return _PySet_Update(set, iterable) < 0 ? -1 : 0;
}

int Operations::dictUpdate(PyObject* dict, PyObject* mapping) {
  if (PyDict_Update(dict, mapping) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(mapping)->tp_name);
  return -1;
}

int Operations::dictMerge(PyObject* dict, PyObject* mapping, PyObject* callee) {
  constexpr int kDuplicatesAreErrors = 2;
  if (_PyDict_MergeEx(dict, mapping, kDuplicatesAreErrors) == 0) return 0;
  explainKeywordsError(callee, mapping);
  return -1;
}

PyObject* Operations::formatValue(PyObject* value, int conversion, PyObject* spec) {
  Ref converted;
  switch (conversion) {
    case 0:
      converted = Ref::borrow(value);
      break;
    case 1:
      converted = Ref::steal(PyObject_Str(value));
      break;
    case 2:
      converted = Ref::steal(PyObject_Repr(value));
      break;
    case 3:
      converted = Ref::steal(PyObject_ASCII(value));
      break;
    default:
      PyErr_Format(PyExc_SystemError, "unexpected conversion flag %d", conversion);
  }
  if (!converted) return nullptr;
  if (!spec && PyUnicode_CheckExact(converted.get())) return converted.release();
  return PyObject_Format(converted.get(), spec);
}

PyObject* Operations::call(PyObject* callee, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  return PyObject_Vectorcall(callee, args, nargsf, kwnames);
}

PyObject* Operations::callEx(PyObject* callee, PyObject* tuple, PyObject* dict) {
  return PyObject_Call(callee, tuple, dict);
}

PyObject* Operations::sequenceToTuple(PyObject* iterable, PyObject* callee) {
  if (!Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable)) {
    PyErr_Clear();
    Ref name = Ref::steal(_PyObject_FunctionStr(callee));
    if (name)
      PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s",
                   name.get(), Py_TYPE(iterable)->tp_name);
    return nullptr;
  }
  return PySequence_Tuple(iterable);
}

PyObject* Operations::loadSpecial(PyObject* object, PyObject* name) {
  return cpython::lookUpSpecial(object, name);
}

PyObject* Operations::length(PyObject* value) {
  Py_ssize_t size = PyObject_Length(value);
  return size < 0 ? nullptr : PyLong_FromSsize_t(size);
}

}  // namespace glowplug::trace
