#pragma once

#include <Python.h>

#include <unordered_map>

namespace glowplug::trace {

// Types and objects of Python and torch that the recorder tells apart, looked up once.
struct WellKnown {
  PyTypeObject* dtype = nullptr;
  PyTypeObject* device = nullptr;
  PyTypeObject* layout = nullptr;
  PyTypeObject* memoryFormat = nullptr;
  PyTypeObject* qscheme = nullptr;
  PyTypeObject* torchSize = nullptr;
  PyTypeObject* enumType = nullptr;  // enum.Enum
  PyTypeObject* partial = nullptr;   // functools.partial
  PyTypeObject* orderedDict = nullptr;
  PyTypeObject* defaultDict = nullptr;
  PyTypeObject* deque = nullptr;
  PyTypeObject* mappingProxy = nullptr;
  PyObject* emptyTuple = nullptr;

  // Immutable singletons of other types that are pinned by identity: enum members, compiled regular
  // expressions, torch.ops operators, typing constructs.
  bool isPinnableType(PyTypeObject* type) const;
  // pybind11's function record: the "self" of C++ functions.
  bool isCapsuleLike(PyTypeObject* type) const;

  mutable std::unordered_map<PyTypeObject*, bool> pinnable;
};

// Made at first use, with the GIL held; torch must be importable.
const WellKnown& wellKnown();

// Whether the object's attribute access is object's own (no C or Python override of
// __getattribute__).
bool hasGenericGetAttr(PyTypeObject* type);
bool hasGenericSetAttr(PyTypeObject* type);

}  // namespace glowplug::trace
