#include "cpython/ref.h"
#include "cpython/special_lookup.h"
#include "trace/evaluation.h"
#include "trace/evaluator.h"

namespace glowplug::trace {

using cpython::Ref;

// [exception] -> [the one handled before, exception]; it becomes the one that is handled.
Flow evalPushExcInfo(Evaluation& e, const Instruction&) {
  PyObject* exception = e.top();
  _PyErr_StackItem* handled = e.thread->exc_info;
  e.top() = handled->exc_value ? handled->exc_value : Py_NewRef(Py_None);
  e.push(Py_NewRef(exception));
  handled->exc_value = exception;
  return Flow::Next;
}

Flow evalPopExcept(Evaluation& e, const Instruction&) {
  _PyErr_StackItem* handled = e.thread->exc_info;
  PyObject* ended = handled->exc_value;
  handled->exc_value = e.pop();
  Py_XDECREF(ended);
  return Flow::Next;
}

namespace {

// Whether `pattern` may stand in an except clause: an exception class, or a tuple of such.
bool checkPattern(PyObject* pattern) {
  bool good = true;
  if (PyTuple_Check(pattern)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pattern) && good; i++)
      good = PyExceptionClass_Check(PyTuple_GET_ITEM(pattern, i));
  } else {
    good = PyExceptionClass_Check(pattern);
  }
  if (!good)
    PyErr_SetString(PyExc_TypeError,
                    "catching classes that do not inherit from BaseException is not allowed");
  return good;
}

// ... and in an except* clause, where groups may not.
bool checkStarPattern(PyObject* pattern) {
  if (!checkPattern(pattern)) return false;
  int group = 0;
  if (PyTuple_Check(pattern)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pattern) && group == 0; i++)
      group = PyObject_IsSubclass(PyTuple_GET_ITEM(pattern, i), PyExc_BaseExceptionGroup);
  } else {
    group = PyObject_IsSubclass(pattern, PyExc_BaseExceptionGroup);
  }
  if (group > 0)
    PyErr_SetString(PyExc_TypeError,
                    "catching ExceptionGroup with except* is not allowed. Use except instead.");
  return group == 0;
}

}  // namespace

Flow evalCheckExcMatch(Evaluation& e, const Instruction&) {
  Ref pattern = Ref::steal(e.pop());
  if (!checkPattern(pattern.get())) return Flow::Error;
  return e.pushBool(PyErr_GivenExceptionMatches(e.top(), pattern.get()));
}

namespace {

bool isGroup(PyObject* exception) {
  return PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
}

// Splits an exception into what the clause matches and the rest; None where there is nothing.
bool splitGroup(PyObject* exception, PyObject* pattern, Ref* match, Ref* rest) {
  *match = *rest = Ref::borrow(Py_None);
  if (exception == Py_None) return true;
  if (PyErr_GivenExceptionMatches(exception, pattern)) {
    // A single exception is handed over in a group of its own.
    *match =
        isGroup(exception)
            ? Ref::borrow(exception)
            : Ref::steal(PyObject_CallFunction(PyExc_BaseExceptionGroup, "s(O)", "", exception));
    return static_cast<bool>(*match);
  }
  if (!isGroup(exception)) return true;
  Ref pair = Ref::steal(PyObject_CallMethod(exception, "split", "(O)", pattern));
  if (!pair) return false;
  *match = Ref::borrow(PyTuple_GET_ITEM(pair.get(), 0));
  *rest = Ref::borrow(PyTuple_GET_ITEM(pair.get(), 1));
  return true;
}

}  // namespace

// [exception, pattern] -> [rest, match], or [exception, None]
Flow evalCheckGroupMatch(Evaluation& e, const Instruction&) {
  Ref pattern = Ref::steal(e.pop());
  if (!checkStarPattern(pattern.get())) return Flow::Error;
  Ref match, rest;
  if (!splitGroup(e.top(), pattern.get(), &match, &rest)) return Flow::Error;
  if (match.get() != Py_None) {
    Ref exception = Ref::steal(e.top());
    e.top() = rest.release();
    PyErr_SetHandledException(match.get());
  }
  e.push(match.release());
  return Flow::Next;
}

// [..., lasti at depth oparg if there is one, exception]
Flow evalReraise(Evaluation& e, const Instruction& i) {
  if (i.arg) {
    // The traceback goes on from the line that raised first. Handlers are still looked up by this
    // instruction: by the other one they could be found again and again.
    PyObject* unit = e.peek(i.arg + 1);
    if (!PyLong_Check(unit)) {
      PyErr_SetString(PyExc_SystemError, "lasti is not an int");
      return Flow::Error;
    }
    e.frame.setInstruction(static_cast<int>(PyLong_AsLong(unit)));
  }
  PyObject* exception = e.pop();
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), exception,
                PyException_GetTraceback(exception));
  return Flow::Unwind;
}

Flow evalPrepareReraiseStar(Evaluation& e, const Instruction&) {
  PyObject* result;
  {
    EvaluationPause pause;
    result = cpython::prepareReraiseStar(e.peek(2), e.peek(1));
  }
  e.drop();
  return e.replaceTop(result);
}

namespace {

// `raise`: the exception that is being handled, again.
Flow raiseAgain(Evaluation& e) {
  PyObject* exception = _PyErr_GetTopmostException(e.thread)->exc_value;
  if (!exception || exception == Py_None) {
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return Flow::Error;
  }
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), Py_NewRef(exception),
                PyException_GetTraceback(exception));
  return Flow::Unwind;
}

// The exception that `raise raised` raises, with an error when it may not.
Ref instanceOf(PyObject* raised) {
  if (PyExceptionInstance_Check(raised)) return Ref::borrow(raised);
  if (!PyExceptionClass_Check(raised)) {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return Ref();
  }
  Ref exception = Ref::steal(PyObject_CallNoArgs(raised));
  if (exception && !PyExceptionInstance_Check(exception.get())) {
    PyErr_Format(PyExc_TypeError,
                 "calling %R should have returned an instance of BaseException, not %R", raised,
                 Py_TYPE(exception.get()));
    return Ref();
  }
  return exception;
}

bool setCause(PyObject* exception, PyObject* cause) {
  Ref fixed;
  if (PyExceptionClass_Check(cause)) {
    fixed = Ref::steal(PyObject_CallNoArgs(cause));
    if (!fixed) return false;
  } else if (PyExceptionInstance_Check(cause)) {
    fixed = Ref::borrow(cause);
  } else if (cause != Py_None) {
    PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
    return false;
  }
  PyException_SetCause(exception, fixed.release());
  return true;
}

}  // namespace

// oparg: 0 `raise`, 1 `raise exception`, 2 `raise exception from cause`
Flow evalRaise(Evaluation& e, const Instruction& i) {
  if (i.arg == 0) return raiseAgain(e);
  Ref cause = i.arg == 2 ? Ref::steal(e.pop()) : Ref();
  Ref raised = Ref::steal(e.pop());
  Ref exception = instanceOf(raised.get());
  if (!exception) return Flow::Error;
  if (cause && !setCause(exception.get(), cause.get())) return Flow::Error;
  PyObject* type = PyExceptionClass_Check(raised.get())
                       ? raised.get()
                       : PyExceptionInstance_Class(exception.get());
  PyErr_SetObject(type, exception.get());
  return Flow::Error;
}

Flow evalUnknown(Evaluation&, const Instruction&) {
  PyErr_SetString(PyExc_SystemError, "unknown opcode");
  return Flow::Error;
}

}  // namespace glowplug::trace
