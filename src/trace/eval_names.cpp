#include "trace/evaluation.h"
#include "trace/messages.h"

// Locals, cells, globals, names of class and module bodies, imports.
namespace glowplug::trace {

Flow evalDeleteFast(Evaluation& e, const Instruction& i) {
  PyObject* old = e.locals[i.arg];
  if (!old) {
    raiseUnboundLocal(e.code, i.arg);
    return Flow::Error;
  }
  e.locals[i.arg] = nullptr;
  Py_DECREF(old);
  return Flow::Next;
}

Flow evalMakeCell(Evaluation& e, const Instruction& i) {
  PyObject* initial = e.locals[i.arg];
  PyObject* cell = PyCell_New(initial);
  if (!cell) return Flow::Error;
  e.locals[i.arg] = cell;
  Py_XDECREF(initial);
  return Flow::Next;
}

Flow evalCopyFreeVars(Evaluation& e, const Instruction& i) {
  PyObject* closure = reinterpret_cast<PyFunctionObject*>(e.frame.function())->func_closure;
  PyObject** free = e.locals + e.code->co_nlocalsplus - e.code->co_nfreevars;
  for (int index = 0; index < i.arg; index++)
    free[index] = Py_NewRef(PyTuple_GET_ITEM(closure, index));
  return Flow::Next;
}

Flow evalLoadDeref(Evaluation& e, const Instruction& i) {
  PyObject* value = e.operations.loadCell(e.locals[i.arg]);
  if (!value) raiseUnboundCell(e.code, i.arg);
  return e.pushResult(value);
}

Flow evalLoadClassDeref(Evaluation& e, const Instruction& i) {
  PyObject* locals = e.frame.locals();
  PyObject* name = PyTuple_GET_ITEM(e.code->co_localsplusnames, i.arg);
  PyObject* value;
  if (PyDict_CheckExact(locals)) {
    value = Py_XNewRef(PyDict_GetItemWithError(locals, name));
    if (!value && PyErr_Occurred()) return Flow::Error;
  } else {
    value = PyObject_GetItem(locals, name);
    if (!value) {
      if (!PyErr_ExceptionMatches(PyExc_KeyError)) return Flow::Error;
      PyErr_Clear();
    }
  }
  return value ? e.pushResult(value) : evalLoadDeref(e, i);
}

Flow evalStoreDeref(Evaluation& e, const Instruction& i) {
  PyObject* value = e.pop();
  e.operations.storeCell(e.locals[i.arg], value);
  Py_DECREF(value);
  return Flow::Next;
}

Flow evalDeleteDeref(Evaluation& e, const Instruction& i) {
  if (!PyCell_GET(e.locals[i.arg])) {
    raiseUnboundCell(e.code, i.arg);
    return Flow::Error;
  }
  e.operations.storeCell(e.locals[i.arg], nullptr);
  return Flow::Next;
}

Flow evalLoadGlobal(Evaluation& e, const Instruction& i) {
  PyObject* value = e.operations.loadGlobal(e.frame, i.object);
  if (!value) return Flow::Error;
  if (i.flag) e.push(nullptr);
  e.push(value);
  return Flow::Next;
}

namespace {

Flow stored(Evaluation& e, int status) {
  e.drop();
  return status < 0 ? Flow::Error : Flow::Next;
}

Flow done(int status) { return status < 0 ? Flow::Error : Flow::Next; }

}  // namespace

Flow evalStoreGlobal(Evaluation& e, const Instruction& i) {
  return stored(e, e.operations.storeGlobal(e.frame, i.object, e.top()));
}

Flow evalDeleteGlobal(Evaluation& e, const Instruction& i) {
  return done(e.operations.storeGlobal(e.frame, i.object, nullptr));
}

Flow evalLoadName(Evaluation& e, const Instruction& i) {
  return e.pushResult(e.operations.loadName(e.frame, i.object));
}

Flow evalStoreName(Evaluation& e, const Instruction& i) {
  return stored(e, e.operations.storeName(e.frame, i.object, e.top()));
}

Flow evalDeleteName(Evaluation& e, const Instruction& i) {
  return done(e.operations.storeName(e.frame, i.object, nullptr));
}

// Gives a class or module body its __annotations__, unless it has one.
Flow evalSetupAnnotations(Evaluation& e, const Instruction&) {
  static PyObject* key = PyUnicode_InternFromString("__annotations__");
  PyObject* locals = e.frame.locals();
  if (!locals) {
    PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
    return Flow::Error;
  }
  PyObject* known;
  if (PyDict_CheckExact(locals)) {
    known = Py_XNewRef(PyDict_GetItemWithError(locals, key));
    if (!known && PyErr_Occurred()) return Flow::Error;
  } else {
    known = PyObject_GetItem(locals, key);
    if (!known) {
      if (!PyErr_ExceptionMatches(PyExc_KeyError)) return Flow::Error;
      PyErr_Clear();
    }
  }
  if (known) {
    Py_DECREF(known);
    return Flow::Next;
  }
  PyObject* annotations = PyDict_New();
  if (!annotations) return Flow::Error;
  int status = e.operations.storeName(e.frame, key, annotations);
  Py_DECREF(annotations);
  return done(status);
}

Flow evalImportName(Evaluation& e, const Instruction& i) {
  PyObject* module = e.operations.importName(e.frame, i.object, e.peek(1), e.peek(2));
  e.drop();
  return e.replaceTop(module);
}

Flow evalImportFrom(Evaluation& e, const Instruction& i) {
  return e.pushResult(e.operations.importFrom(e.top(), i.object));
}

Flow evalImportStar(Evaluation& e, const Instruction&) {
  return stored(e, e.operations.importStar(e.frame, e.top()));
}

Flow evalLoadBuildClass(Evaluation& e, const Instruction&) {
  return e.pushResult(e.operations.loadBuildClass(e.frame));
}

Flow evalLoadAssertionError(Evaluation& e, const Instruction&) {
  e.push(Py_NewRef(PyExc_AssertionError));
  return Flow::Next;
}

}  // namespace glowplug::trace
