#include "trace/evaluation.h"

// Iterators and generators.
namespace glowplug::trace {

Flow evalGetIter(Evaluation& e, const Instruction&) {
  return e.replaceTop(e.operations.iter(e.top()));
}

Flow evalForIter(Evaluation& e, const Instruction& i) {
  PyObject* item = e.operations.next(e.top());
  if (item) {
    e.push(item);
    return Flow::Next;
  }
  if (PyErr_Occurred()) return Flow::Error;
  e.drop();
  e.jump(i);
  return Flow::Next;
}

Flow evalGetYieldFromIter(Evaluation& e, const Instruction&) {
  return e.replaceTop(e.operations.yieldFromIter(e.top(), e.frame));
}

// [receiver, value] -> [receiver, yielded], or past the loop: [returned]
Flow evalSend(Evaluation& e, const Instruction& i) {
  PyObject* value = e.pop();
  PyObject* receiver = e.top();
  PyObject* result = nullptr;
  const PySendResult status = e.operations.send(receiver, value, &result);
  Py_DECREF(value);
  if (status == PYGEN_ERROR) return Flow::Error;
  if (status == PYGEN_RETURN) {
    e.top() = result;
    Py_DECREF(receiver);
    e.jump(i);
  } else {
    e.push(result);
  }
  return Flow::Next;
}

// Frames that make a generator go to the default evaluator before they begin. One that gets here
// has code flags that do not fit its instructions.
Flow evalReturnGenerator(Evaluation&, const Instruction&) { return Flow::Delegate; }

}  // namespace glowplug::trace
