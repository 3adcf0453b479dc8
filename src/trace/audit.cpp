// The provenance audit, a debugging check (option "audit").
//
// Soundness rests on one claim: an object from outside never reaches the program without a guard on
// the path it came by. The claim can be tried: before a recording every object that the garbage
// collector tracks is noted, and one of them that comes out of an operation without a source is a
// hole in a model.

#include <fmt/format.h>

#include "cpython/modules.h"
#include "trace/recorder.h"

namespace glowplug::trace {

using cpython::Ref;

void Recorder::startAudit() {
  if (!limits_.audit) return;
  Ref gc = cpython::importModule("gc");
  Ref objects = gc ? Ref::steal(PyObject_CallMethod(gc.get(), "get_objects", nullptr)) : Ref();
  if (!objects) return PyErr_Clear();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects.get()); i++) {
    PyObject* object = PyList_GET_ITEM(objects.get(), i);
    outside_.insert(object);
    // An address must not come to mean another object while the audit lasts.
    scalarObjects_.push_back(Ref::borrow(object));
  }
}

PyObject* Recorder::audited(PyObject* result, const char* where, PyObject* what) {
  if (!active_ || !result || outside_.empty() || !outside_.count(result)) return result;
  if (isConstant(result) || isPinnable(result) || provenance_.find(result).valid()) return result;
  // Tensors are known by themselves. Those of a replay that is followed were there before.
  if (aten::isTensor(result) && ops_->find(result).valid()) return result;
  std::string name = what && PyUnicode_Check(what) ? PyUnicode_AsUTF8(what)
                     : what                        ? calleeName(what)
                                                   : "";
  refuse("unknown_source", fmt::format("a {} out of {} {}", Py_TYPE(result)->tp_name, where, name));
  return result;
}

// Arguments may come from where no instruction has loaded them: what a method is bound to, what C
// code passes on.
void Recorder::auditArguments(cpython::FrameView frame) {
  if (outside_.empty()) return;
  PyCodeObject* code = frame.code();
  int count = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
              ((code->co_flags & CO_VARKEYWORDS) != 0);
  for (int i = 0; i < count; i++)
    audited(frame.fastLocals()[i], "an argument of",
            reinterpret_cast<PyObject*>(code->co_qualname));
}

}  // namespace glowplug::trace
