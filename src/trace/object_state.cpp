// What copying and pickling ask of an object: object.__reduce_ex__ and its relatives.
//
// They read the whole state in C. Methods of the class that they call, if written in Python, are
// evaluated like any other.

#include <array>

#include "cpython/object_fields.h"
#include "trace/containers.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

void Recorder::readSlots(PyObject* object, SourceId source) {
  for (PyObject* found : cpython::slotNames(Py_TYPE(object))) {
    if (!active_) return;
    PyObject* name = provenance_.canonical(found);
    if (isWritten(object, name)) continue;
    Ref value = Ref::steal(PyObject_GenericGetAttr(object, name));
    if (!value) {
      PyErr_Clear();
      guard(PredicateKind::Unset, source, name);
    } else {
      noteLoad(child(source, StepKind::SlotAttr, name), value.get());
    }
  }
}

void Recorder::readState(PyObject* object) {
  static const std::array<PyObject*, 6> kNames = {
      PyUnicode_InternFromString("__reduce__"),        PyUnicode_InternFromString("__getstate__"),
      PyUnicode_InternFromString("__getnewargs_ex__"), PyUnicode_InternFromString("__getnewargs__"),
      PyUnicode_InternFromString("__slots__"),         PyUnicode_InternFromString("__class__")};
  for (PyObject* name : kNames) typeAttr(Py_TYPE(object), name);
  SourceId source = provenance_.find(object);
  if (!active_ || !source.valid() || isConstant(object) || isPinnable(object)) return;
  if (isKnownContainer(object)) readAll(object);
  if (_PyObject_GetDictPtr(object)) {
    Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!dict) return PyErr_Clear(), refuse("unguardable", "the state of an object");
    noteLoad(child(source, StepKind::InstanceDict), dict.get());
    readAll(dict.get());
  }
  readSlots(object, source);
}

PyObject* Recorder::callReduce(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  PyObject* object = args.count() ? args.values[0] : nullptr;
  if (!object) return invoke();
  if (isForeign(object) || aten::isTensor(object)) return callUnknown(callee, args, invoke);
  if (PyObject_TypeCheck(object, wellKnown().partial) && !notePartial(object)) return nullptr;
  useScalar(object);
  readState(object);
  return invoke();
}

}  // namespace glowplug::trace
