#include "trace/evaluation.h"

namespace glowplug::trace {

namespace {

Flow done(Evaluation& e, int operands, int status) {
  e.dropMany(operands);
  return status < 0 ? Flow::Error : Flow::Next;
}

}  // namespace

Flow evalLoadAttr(Evaluation& e, const Instruction& i) {
  PyObject* value = e.operations.loadAttr(e.top(), i.object);
  if (!value) return Flow::Error;
  return e.replaceTop(value);
}

// Leaves [method, object] to be called with the object first, or [null, bound].
Flow evalLoadMethod(Evaluation& e, const Instruction& i) {
  PyObject* object = e.top();
  PyObject* method = nullptr;
  const int unbound = e.operations.loadMethod(object, i.object, &method);
  if (unbound < 0) return Flow::Error;
  if (unbound) {
    e.top() = method;
    e.push(object);
  } else {
    e.top() = nullptr;
    e.push(method);
    Py_DECREF(object);
  }
  return Flow::Next;
}

Flow evalStoreAttr(Evaluation& e, const Instruction& i) {
  return done(e, 2, e.operations.storeAttr(e.peek(1), i.object, e.peek(2)));
}

Flow evalDeleteAttr(Evaluation& e, const Instruction& i) {
  return done(e, 1, e.operations.storeAttr(e.peek(1), i.object, nullptr));
}

Flow evalLoadItem(Evaluation& e, const Instruction&) {
  PyObject* item = e.operations.loadItem(e.peek(2), e.peek(1));
  e.drop();
  return e.replaceTop(item);
}

Flow evalStoreItem(Evaluation& e, const Instruction&) {
  return done(e, 3, e.operations.storeItem(e.peek(2), e.peek(1), e.peek(3)));
}

Flow evalDeleteItem(Evaluation& e, const Instruction&) {
  return done(e, 2, e.operations.storeItem(e.peek(2), e.peek(1), nullptr));
}

}  // namespace glowplug::trace
