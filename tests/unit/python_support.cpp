#include "python_support.h"

#include <gtest/gtest.h>

namespace glowplug::testing {

PyObject* Python::globals() {
  static PyObject* const kGlobals = [] {
    PyObject* dict = PyDict_New();
    PyDict_SetItemString(dict, "__builtins__", PyEval_GetBuiltins());
    // Functions of tests stand for those of libraries that keep to themselves.
    PyDict_SetItemString(dict, "__name__",
                         Ref::steal(PyUnicode_FromString("glowplug.tested")).get());
    Ref done = Ref::steal(PyRun_String(helpers(), Py_file_input, dict, dict));
    if (!done) PyErr_Print();
    return dict;
  }();
  return kGlobals;
}

void Python::run(const std::string& code) {
  Ref done = Ref::steal(PyRun_String(code.c_str(), Py_file_input, globals(), globals()));
  if (!done) PyErr_Print();
  ASSERT_TRUE(done) << code;
}

Ref Python::eval(const std::string& expression) {
  Ref value = Ref::steal(PyRun_String(expression.c_str(), Py_eval_input, globals(), globals()));
  if (!value) PyErr_Print();
  EXPECT_TRUE(value) << expression;
  return value;
}

bool Python::truth(const std::string& expression) {
  Ref value = eval(expression);
  return value && PyObject_IsTrue(value.get()) == 1;
}

std::string Python::text(const std::string& expression) {
  Ref value = Ref::steal(PyObject_Str(eval(expression).get()));
  return value ? PyUnicode_AsUTF8(value.get()) : takeError();
}

void Python::set(const char* name, PyObject* value) {
  PyDict_SetItemString(globals(), name, value);
}

std::string Python::takeError() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return "";
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(traceback);
  set("error", value);
  Ref text = Ref::steal(PyObject_Str(value));
  return std::string(reinterpret_cast<PyTypeObject*>(type)->tp_name) + ": " +
         PyUnicode_AsUTF8(text.get());
}

}  // namespace glowplug::testing
