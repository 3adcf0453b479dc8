#include "cpython/awaitables.h"
#include "trace/evaluation.h"

// Coroutines and async generators. An awaitable's own Python code runs in frames of its own, which
// are evaluated like any other.
namespace glowplug::trace {

namespace {

// After __aenter__ or __aexit__ (oparg 1 and 2) the message says which of them was wrong.
void explainAwaitError(PyTypeObject* type, int where) {
  if (!type->tp_as_async || !type->tp_as_async->am_await) {
    if (where == 1)
      PyErr_Format(PyExc_TypeError,
                   "'async with' received an object from __aenter__ "
                   "that does not implement __await__: %.100s",
                   type->tp_name);
    else if (where == 2)
      PyErr_Format(PyExc_TypeError,
                   "'async with' received an object from __aexit__ "
                   "that does not implement __await__: %.100s",
                   type->tp_name);
  }
}

}  // namespace

Flow evalGetAwaitable(Evaluation& e, const Instruction& i) {
  PyObject* awaited = e.top();
  PyObject* iterator = cpython::awaitableIterator(awaited);
  if (!iterator) explainAwaitError(Py_TYPE(awaited), i.arg);
  if (iterator && PyCoro_CheckExact(iterator)) {
    PyObject* waitsFor = cpython::awaitedBy(iterator);
    if (waitsFor) {
      Py_DECREF(waitsFor);
      Py_CLEAR(iterator);
      PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    }
  }
  return e.replaceTop(iterator);
}

Flow evalGetAiter(Evaluation& e, const Instruction&) {
  PyTypeObject* type = Py_TYPE(e.top());
  unaryfunc getter = type->tp_as_async ? type->tp_as_async->am_aiter : nullptr;
  if (!getter) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' requires an object with __aiter__ method, got %.100s", type->tp_name);
    e.drop();
    return Flow::Error;
  }
  PyObject* iterator = getter(e.top());
  if (iterator) {
    PyTypeObject* made = Py_TYPE(iterator);
    if (!made->tp_as_async || !made->tp_as_async->am_anext) {
      PyErr_Format(PyExc_TypeError,
                   "'async for' received an object from __aiter__ "
                   "that does not implement __anext__: %.100s",
                   made->tp_name);
      Py_CLEAR(iterator);
    }
  }
  return e.replaceTop(iterator);
}

Flow evalGetAnext(Evaluation& e, const Instruction&) {
  PyObject* iterator = e.top();
  PyTypeObject* type = Py_TYPE(iterator);
  unaryfunc getter = type->tp_as_async ? type->tp_as_async->am_anext : nullptr;
  if (!getter) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' requires an iterator with __anext__ method, got %.100s",
                 type->tp_name);
    return Flow::Error;
  }
  PyObject* next = getter(iterator);
  if (!next || PyAsyncGen_CheckExact(iterator)) return e.pushResult(next);
  PyObject* awaitable = cpython::awaitableIterator(next);
  if (!awaitable)
    _PyErr_FormatFromCause(PyExc_TypeError,
                           "'async for' received an invalid object from __anext__: %.100s",
                           Py_TYPE(next)->tp_name);
  Py_DECREF(next);
  return e.pushResult(awaitable);
}

// [iterator, exception]: the end of an `async for`, unless the exception is another.
Flow evalEndAsyncFor(Evaluation& e, const Instruction&) {
  PyObject* exception = e.pop();
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    Py_DECREF(exception);
    e.drop();
    return Flow::Next;
  }
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), exception,
                PyException_GetTraceback(exception));
  return Flow::Unwind;
}

namespace {

Flow raiseNoAsyncContextManager(PyObject* manager, const char* missing) {
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_TypeError,
                 "'%.200s' object does not support the asynchronous context manager protocol%s",
                 Py_TYPE(manager)->tp_name, missing);
  return Flow::Error;
}

}  // namespace

Flow evalBeforeAsyncWith(Evaluation& e, const Instruction&) {
  static PyObject* enterName = PyUnicode_InternFromString("__aenter__");
  static PyObject* exitName = PyUnicode_InternFromString("__aexit__");
  PyObject* manager = e.top();
  PyObject* enter = e.operations.loadSpecial(manager, enterName);
  if (!enter) return raiseNoAsyncContextManager(manager, "");
  PyObject* exit = e.operations.loadSpecial(manager, exitName);
  if (!exit) {
    Py_DECREF(enter);
    return raiseNoAsyncContextManager(manager, " (missed __aexit__ method)");
  }
  e.top() = exit;
  Py_DECREF(manager);
  PyObject* offset[] = {nullptr};
  PyObject* result = e.operations.call(enter, offset + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_DECREF(enter);
  return e.pushResult(result);
}

Flow evalAsyncGenWrap(Evaluation& e, const Instruction&) {
  return e.replaceTop(cpython::wrapAsyncValue(e.top()));
}

}  // namespace glowplug::trace
