#include "cpython/ref.h"
#include "trace/evaluation.h"

namespace glowplug::trace {

namespace {

Flow binaryResult(Evaluation& e, PyObject* result) {
  e.drop();
  return e.replaceTop(result);
}

Flow binaryBool(Evaluation& e, bool result) {
  e.dropMany(2);
  return e.pushBool(result);
}

}  // namespace

Flow evalBinary(Evaluation& e, const Instruction& i) {
  return binaryResult(e, e.operations.binary(i.arg, e.peek(2), e.peek(1)));
}

Flow evalCompare(Evaluation& e, const Instruction& i) {
  return binaryResult(e, e.operations.compare(i.arg, e.peek(2), e.peek(1)));
}

Flow evalIs(Evaluation& e, const Instruction& i) {
  return binaryBool(e, e.operations.is(e.peek(2), e.peek(1)) != static_cast<bool>(i.arg));
}

Flow evalContains(Evaluation& e, const Instruction& i) {
  const int found = e.operations.contains(e.peek(1), e.peek(2));
  if (found < 0) {
    e.dropMany(2);
    return Flow::Error;
  }
  return binaryBool(e, static_cast<bool>(found) != static_cast<bool>(i.arg));
}

Flow evalUnaryPositive(Evaluation& e, const Instruction&) {
  return e.replaceTop(e.operations.positive(e.top()));
}

Flow evalUnaryNegative(Evaluation& e, const Instruction&) {
  return e.replaceTop(e.operations.negative(e.top()));
}

Flow evalUnaryInvert(Evaluation& e, const Instruction&) {
  return e.replaceTop(e.operations.invert(e.top()));
}

Flow evalUnaryNot(Evaluation& e, const Instruction&) {
  PyObject* value = e.top();
  const int truth = PyBool_Check(value) ? value == Py_True : e.operations.truth(value);
  e.drop();
  return truth < 0 ? Flow::Error : e.pushBool(!truth);
}

// oparg: the conversion (none, str, repr, ascii), and whether a format specification lies on top.
Flow evalFormatValue(Evaluation& e, const Instruction& i) {
  constexpr int kConversion = 0x3;
  constexpr int kHasSpec = 0x4;
  const bool hasSpec = (i.arg & kHasSpec) != 0;
  PyObject* spec = hasSpec ? e.pop() : nullptr;
  PyObject* text = e.operations.formatValue(e.top(), i.arg & kConversion, spec);
  Py_XDECREF(spec);
  return e.replaceTop(text);
}

Flow evalPrintExpression(Evaluation& e, const Instruction&) {
  PyObject* hook = Py_XNewRef(PySys_GetObject("displayhook"));
  if (!hook) {
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    e.drop();
    return Flow::Error;
  }
  PyObject* args[] = {nullptr, e.top()};
  PyObject* result = e.operations.call(hook, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_DECREF(hook);
  e.drop();
  if (!result) return Flow::Error;
  Py_DECREF(result);
  return Flow::Next;
}

}  // namespace glowplug::trace
