// Callables that C code is given and calls itself: map, sorted(key=), functools.reduce...
//
// One in Python is evaluated like any other. One in C is called out of sight: what such a call
// reads must be guarded before, and one that may write, or read what is not known, is refused.

#include <algorithm>
#include <array>
#include <string_view>

#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

// How a callable behaves that C code calls.
enum class Handed {
  Seen,   // evaluated, or its work is seen in another way; or no callable at all
  Reads,  // reads its arguments and what it is bound to, changes nothing
  Unknown,
};

Handed handedKind(CalleeKind kind) {
  switch (kind) {
    case CalleeKind::Python:
    case CalleeKind::Tensor:
    case CalleeKind::TensorQuery:
    case CalleeKind::State:
      return Handed::Seen;
    case CalleeKind::Pure:
    case CalleeKind::Shallow:
    case CalleeKind::Length:
    case CalleeKind::IsInstance:
    case CalleeKind::DictGet:
    case CalleeKind::DictContains:
    case CalleeKind::DictGetItem:
    case CalleeKind::DictRead:
    case CalleeKind::ListRead:
    case CalleeKind::ListGetItem:
    case CalleeKind::SetRead:
    case CalleeKind::DequeRead:
      return Handed::Reads;
    default:
      return Handed::Unknown;
  }
}

bool isNamed(PyTypeObject* type, std::string_view name) { return type->tp_name == name; }

Handed handedType(PyTypeObject* type) {
  if (type == &PyLong_Type || type == &PyFloat_Type) return Handed::Seen;
  if (isPythonClass(type)) return Handed::Reads;
  const Handed known = handedKind(calleeModel(reinterpret_cast<PyObject*>(type)).kind);
  return known == Handed::Unknown ? Handed::Unknown : Handed::Reads;
}

Handed handed(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!type->tp_call || PyFunction_Check(object) || isTransparentCallable(type))
    return Handed::Seen;
  if (PyMethod_Check(object)) return handed(PyMethod_GET_FUNCTION(object));
  if (PyType_Check(object)) return handedType(reinterpret_cast<PyTypeObject*>(object));
  if (PyObject_TypeCheck(object, wellKnown().partial)) {
    Ref function = Ref::steal(PyObject_GetAttrString(object, "func"));
    return function ? handed(function.get()) : Handed::Unknown;
  }
  if (PyCFunction_Check(object) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
      type == &_PyMethodWrapper_Type)
    return handedKind(calleeModel(object).kind);
  if (isNamed(type, "operator.itemgetter")) return Handed::Reads;
  return isPythonClass(type) ? Handed::Seen : Handed::Unknown;
}

// C callables that call what they are given.
bool callsArguments(PyObject* callee) {
  if (PyType_Check(callee)) {
    const std::string_view name = reinterpret_cast<PyTypeObject*>(callee)->tp_name;
    return name == "map" || name == "filter" || name == "collections.defaultdict" ||
           name.substr(0, 10) == "itertools.";
  }
  static constexpr std::array<std::string_view, 7> kNames = {
      "sorted", "max", "min", "iter", "_functools.reduce", "functools.reduce", "list.sort"};
  return std::find(kNames.begin(), kNames.end(), calleeName(callee)) != kNames.end();
}

// Whether evaluated code makes what the iterator gives: then it is known where each item is from.
bool givesWhatIsSeen(PyObject* iterator) {
  if (PyGen_CheckExact(iterator)) return true;
  if (Py_TYPE(iterator) != &PyMap_Type) return false;
  // (map, (function, iterators...)), without running any code of the program's.
  Ref parts = Ref::steal(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  if (!parts) {
    PyErr_Clear();
    return false;
  }
  PyObject* given = PyTuple_GET_ITEM(parts.get(), 1);
  PyObject* function = PyTuple_GET_ITEM(given, 0);
  return PyFunction_Check(function) ||
         (PyMethod_Check(function) && PyFunction_Check(PyMethod_GET_FUNCTION(function)));
}

}  // namespace

// What a callable in C reads besides its arguments.
void Recorder::readHanded(PyObject* callable) {
  if (PyObject_TypeCheck(callable, wellKnown().partial)) {
    for (const char* part : {"func", "args", "keywords"}) {
      Ref value = Ref::steal(PyObject_GetAttrString(callable, part));
      if (!value) return PyErr_Clear();
      if (*part == 'f')
        readHanded(value.get());
      else
        deepRead(value.get());
    }
    return;
  }
  if (PyMethod_Check(callable)) return deepRead(PyMethod_GET_SELF(callable));
  if (PyObject* self = boundTo(callable)) deepRead(self);
}

void Recorder::noteHanded(PyObject* callee, const Arguments& args) {
  bool reads = false;
  for (size_t i = 0; active_ && i < args.count(); i++) {
    PyObject* given = args.values[i];
    const Handed kind = handed(given);
    if (kind == Handed::Seen || !callsArguments(callee)) continue;
    if (kind == Handed::Unknown)
      return refuse("opaque_call", calleeName(given) + ", called by " + calleeName(callee));
    readHanded(given);
    reads = true;
  }
  for (size_t i = 0; reads && active_ && i < args.count(); i++) {
    // What other iterators go over cannot be looked at before.
    if (givesWhatIsSeen(args.values[i])) continue;
    if (PyIter_Check(args.values[i]))
      return refuse("unguardable", "the items of an iterator that C code goes over");
    deepRead(args.values[i]);
  }
}

}  // namespace glowplug::trace
