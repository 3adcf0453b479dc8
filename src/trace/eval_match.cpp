#include "trace/evaluation.h"

namespace glowplug::trace {

Flow evalGetLength(Evaluation& e, const Instruction&) {
  return e.pushResult(e.operations.length(e.top()));
}

Flow evalMatchMapping(Evaluation& e, const Instruction&) {
  return e.pushBool(e.operations.isMapping(e.top()));
}

Flow evalMatchSequence(Evaluation& e, const Instruction&) {
  return e.pushBool(e.operations.isSequence(e.top()));
}

// [subject, type, names] -> [tuple of attributes, or None]
Flow evalMatchClass(Evaluation& e, const Instruction& i) {
  PyObject* values = e.operations.matchClass(e.peek(3), e.peek(2), i.arg, e.peek(1));
  e.dropMany(2);
  if (!values) {
    if (PyErr_Occurred()) return Flow::Error;
    values = Py_NewRef(Py_None);
  }
  return e.replaceTop(values);
}

Flow evalMatchKeys(Evaluation& e, const Instruction&) {
  return e.pushResult(e.operations.matchKeys(e.peek(2), e.peek(1)));
}

}  // namespace glowplug::trace
