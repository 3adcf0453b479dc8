#include "trace/messages.h"

#include "cpython/ref.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

// NameError carries the name, from which Python suggests similar ones.
void attachName(PyObject* name) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyErr_GivenExceptionMatches(value, PyExc_NameError)) {
    auto* error = reinterpret_cast<PyNameErrorObject*>(value);
    if (!error->name) error->name = Py_NewRef(name);
  }
  PyErr_Restore(type, value, traceback);
}

void raiseNamed(PyObject* exception, const char* format, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return;
  PyErr_Format(exception, format, text);
  if (exception == PyExc_NameError) attachName(name);
}

}  // namespace

void raiseNameError(PyObject* name) {
  raiseNamed(PyExc_NameError, "name '%.200s' is not defined", name);
}

void raiseUnboundLocal(PyCodeObject* code, int local) {
  raiseNamed(PyExc_UnboundLocalError,
             "cannot access local variable '%s' where it is not associated with a value",
             PyTuple_GET_ITEM(code->co_localsplusnames, local));
}

void raiseUnboundCell(PyCodeObject* code, int local) {
  if (PyErr_Occurred()) return;
  PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, local);
  const int firstFree = code->co_nlocalsplus - code->co_nfreevars;
  if (local < firstFree)
    raiseUnboundLocal(code, local);
  else
    raiseNamed(PyExc_NameError,
               "cannot access free variable '%s' where it is not associated with a value in "
               "enclosing scope",
               name);
}

void explainKeywordsError(PyObject* callee, PyObject* mapping) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    Ref name = Ref::steal(_PyObject_FunctionStr(callee));
    if (name)
      PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s",
                   name.get(), Py_TYPE(mapping)->tp_name);
    return;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!value || !PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 1) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  Ref name = Ref::steal(_PyObject_FunctionStr(callee));
  if (name)
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", name.get(),
                 PyTuple_GET_ITEM(value, 0));
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

}  // namespace glowplug::trace
