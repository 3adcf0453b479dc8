#include "cpython/pycore.h"

#include <opcode.h>

#include "cpython/awaitables.h"

extern "C" const unsigned char* glowplugOriginalOpcodes(void);

namespace glowplug::cpython {

namespace {

// Objects/genobject.c of 3.11 (the struct is in no header).
struct WrappedValue {
  PyObject_HEAD PyObject* value;
};

bool isCoroutine(PyObject* object) {
  if (PyCoro_CheckExact(object)) return true;
  if (!PyGen_CheckExact(object)) return false;
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  return generator->gi_code->co_flags & CO_ITERABLE_COROUTINE;
}

}  // namespace

PyObject* awaitableIterator(PyObject* object) {
  if (isCoroutine(object)) return Py_NewRef(object);
  PyTypeObject* type = Py_TYPE(object);
  unaryfunc getter = type->tp_as_async ? type->tp_as_async->am_await : nullptr;
  if (!getter) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression",
                 type->tp_name);
    return nullptr;
  }
  PyObject* iterator = getter(object);
  if (!iterator) return nullptr;
  if (isCoroutine(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    Py_CLEAR(iterator);
  } else if (!PyIter_Check(iterator)) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'",
                 Py_TYPE(iterator)->tp_name);
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* awaitedBy(PyObject* coroutine) {
  auto* generator = reinterpret_cast<PyGenObject*>(coroutine);
  if (generator->gi_frame_state >= FRAME_CLEARED || generator->gi_frame_state == FRAME_CREATED)
    return nullptr;
  auto* frame = reinterpret_cast<_PyInterpreterFrame*>(generator->gi_iframe);
  _Py_CODEUNIT next = frame->prev_instr[1];
  // RESUME's argument is 2 or more where `yield from` and `await` go on.
  if (glowplugOriginalOpcodes()[_Py_OPCODE(next)] != RESUME || _Py_OPARG(next) < 2) return nullptr;
  return Py_NewRef(_PyFrame_StackPeek(frame));
}

PyObject* wrapAsyncValue(PyObject* value) {
  auto* wrapped = PyObject_GC_New(WrappedValue, &_PyAsyncGenWrappedValue_Type);
  if (!wrapped) return nullptr;
  wrapped->value = Py_NewRef(value);
  PyObject_GC_Track(wrapped);
  return reinterpret_cast<PyObject*>(wrapped);
}

}  // namespace glowplug::cpython
