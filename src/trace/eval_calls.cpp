#include "trace/evaluation.h"

// Calls, functions, and `with`, which is two calls.
namespace glowplug::trace {

namespace {

// [null, bound method, arguments] -> [function, self, arguments]
void unpackBoundMethod(Evaluation& e, int args) {
  PyObject* callee = e.peek(args + 1);
  if (e.peek(args + 2) || !Py_IS_TYPE(callee, &PyMethod_Type)) return;
  auto* method = reinterpret_cast<PyMethodObject*>(callee);
  e.peek(args + 1) = Py_NewRef(method->im_self);
  e.peek(args + 2) = Py_NewRef(method->im_func);
  Py_DECREF(callee);
}

}  // namespace

Flow evalCall(Evaluation& e, const Instruction& i) {
  unpackBoundMethod(e, i.arg);
  const bool method = e.peek(i.arg + 2) != nullptr;
  const int total = i.arg + method;
  PyObject* callee = e.peek(total + 1);
  PyObject* kwnames = e.kwnames;
  const size_t positional = static_cast<size_t>(total - (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  e.kwnames = nullptr;
  PyObject* result = e.operations.call(callee, e.stack - total,
                                       positional | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  PyObject** args = e.stack - total;
  e.stack = args - (method ? 1 : 2);  // the callee, and the null below it
  Py_DECREF(callee);
  for (int index = 0; index < total; index++) Py_DECREF(args[index]);
  if (!result) return Flow::Error;
  e.push(result);
  return Flow::Pending;
}

namespace {

// The ** operand as a dict of its own kind; new reference.
PyObject* exactKeywords(Evaluation& e, PyObject* mapping, PyObject* callee) {
  if (PyDict_CheckExact(mapping)) return Py_NewRef(mapping);
  PyObject* dict = PyDict_New();
  if (dict && e.operations.dictMerge(dict, mapping, callee) < 0) Py_CLEAR(dict);
  return dict;
}

}  // namespace

// [null, callee, arguments, keywords if oparg says so]
Flow evalCallEx(Evaluation& e, const Instruction& i) {
  PyObject* keywords = nullptr;
  if (i.arg & 1) {
    PyObject* mapping = e.top();
    keywords = exactKeywords(e, mapping, e.peek(3));
    e.drop();
    if (!keywords) return Flow::Error;
  }
  PyObject* args = e.top();
  PyObject* callee = e.peek(2);
  if (!PyTuple_CheckExact(args)) {
    PyObject* tuple = e.operations.sequenceToTuple(args, callee);
    e.drop();
    if (!tuple) {
      Py_XDECREF(keywords);
      return Flow::Error;
    }
    e.push(tuple);
  }
  PyObject* result = e.operations.callEx(callee, e.top(), keywords);
  args = e.pop();
  e.drop();
  e.stack--;  // the null below
  Py_DECREF(args);
  Py_XDECREF(keywords);
  if (!result) return Flow::Error;
  e.push(result);
  return Flow::Pending;
}

Flow evalMakeFunction(Evaluation& e, const Instruction& i) {
  enum { Defaults = 1, KeywordDefaults = 2, Annotations = 4, Closure = 8 };
  PyObject* code = e.pop();
  PyObject* made = PyFunction_New(code, e.frame.globals());
  Py_DECREF(code);
  if (!made) return Flow::Error;
  auto* function = reinterpret_cast<PyFunctionObject*>(made);
  if (i.arg & Closure) function->func_closure = e.pop();
  if (i.arg & Annotations) function->func_annotations = e.pop();
  if (i.arg & KeywordDefaults) function->func_kwdefaults = e.pop();
  if (i.arg & Defaults) function->func_defaults = e.pop();
  e.operations.madeFunction(made);
  e.push(made);
  return Flow::Next;
}

namespace {

Flow raiseNoContextManager(PyObject* manager, const char* missing) {
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol%s",
                 Py_TYPE(manager)->tp_name, missing);
  return Flow::Error;
}

}  // namespace

// [manager] -> [bound __exit__, what __enter__() returned]
Flow evalBeforeWith(Evaluation& e, const Instruction&) {
  static PyObject* enterName = PyUnicode_InternFromString("__enter__");
  static PyObject* exitName = PyUnicode_InternFromString("__exit__");
  PyObject* manager = e.top();
  PyObject* enter = e.operations.loadSpecial(manager, enterName);
  if (!enter) return raiseNoContextManager(manager, "");
  PyObject* exit = e.operations.loadSpecial(manager, exitName);
  if (!exit) {
    Py_DECREF(enter);
    return raiseNoContextManager(manager, " (missed __exit__ method)");
  }
  e.top() = exit;
  Py_DECREF(manager);
  PyObject* offset[] = {nullptr};
  PyObject* result = e.operations.call(enter, offset + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_DECREF(enter);
  return e.pushResult(result);
}

// [__exit__, lasti, previous exception, exception] -> the same and the result of __exit__(...)
Flow evalWithExceptStart(Evaluation& e, const Instruction&) {
  PyObject* exception = e.top();
  PyObject* traceback = PyException_GetTraceback(exception);
  Py_XDECREF(traceback);  // the exception keeps it
  PyObject* args[] = {nullptr, PyExceptionInstance_Class(exception), exception,
                      traceback ? traceback : Py_None};
  return e.pushResult(
      e.operations.call(e.peek(4), args + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

}  // namespace glowplug::trace
