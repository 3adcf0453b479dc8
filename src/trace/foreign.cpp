#include "trace/foreign.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "cpython/ref.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

// Modules whose classes in C have models, or hold nothing that the program could look at.
constexpr std::array<std::string_view, 16> kKnownModules = {
    "collections", "_collections", "itertools",    "functools", "_functools", "types",
    "torch",       "re",           "_sre",         "_thread",   "weakref",    "operator",
    "_operator",   "contextvars",  "_contextvars", "glowplug"};
// Builtin classes that have none.
constexpr std::array<std::string_view, 5> kUnknownBuiltins = {
    "bytearray", "memoryview", "bytearray_iterator", "memory_iterator", "managedbuffer"};

// What classes made by a `class` statement are freed by; not exported.
destructor pythonDealloc() {
  static destructor found = [] {
    Ref probe = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}",
                                                 "glowplug_probe"));
    if (!probe) PyErr_Clear();
    return probe ? reinterpret_cast<PyTypeObject*>(probe.get())->tp_dealloc : nullptr;
  }();
  return found;
}

bool isKnownBase(PyTypeObject* type) {
  std::string_view name = type->tp_name;
  size_t dot = name.find('.');
  if (dot == std::string_view::npos)
    return std::find(kUnknownBuiltins.begin(), kUnknownBuiltins.end(), name) ==
           kUnknownBuiltins.end();
  std::string_view module = name.substr(0, dot);
  return std::find(kKnownModules.begin(), kKnownModules.end(), module) != kKnownModules.end();
}

}  // namespace

bool isPythonClass(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_dealloc == pythonDealloc();
}

bool isForeignType(PyTypeObject* type) {
  while (isPythonClass(type) && type->tp_base) type = type->tp_base;
  return !isKnownBase(type);
}

bool keepsToItself(PyTypeObject* type) {
  constexpr std::array<std::string_view, 3> kModules = {"numpy.", "datetime.", "decimal."};
  std::string_view name = type->tp_name;
  return std::any_of(kModules.begin(), kModules.end(),
                     [&](std::string_view module) { return name.starts_with(module); });
}

bool isForeign(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  // What nearly all objects are.
  if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyUnicode_Type ||
      type == &PyTuple_Type || type == &PyDict_Type || type == &PyList_Type || object == Py_None ||
      type == &PyBool_Type)
    return false;
  return isForeignType(type);
}

}  // namespace glowplug::trace
