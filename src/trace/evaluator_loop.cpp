#include <utility>

#include "cpython/eval_hook.h"
#include "cpython/pending_work.h"
#include "cpython/running_frame.h"
#include "cpython/trace_events.h"
#include "trace/evaluation.h"
#include "trace/evaluator.h"
#include "trace/messages.h"

// The frame loop: instructions that only move values or jump are evaluated here, the others in
// eval_<family>.cpp. It keeps to what CPython's own loop does in the order in which it does it,
// down to where an exception is looked up and which line a traceback names.
namespace glowplug::trace {

using cpython::FrameView;
using cpython::Op;
using cpython::RunningFrame;

namespace {

inline Flow inlineLoadFast(Evaluation& e, const Instruction& i) {
  PyObject* value = e.locals[i.arg];
  if (!value) [[unlikely]] {
    raiseUnboundLocal(e.code, i.arg);
    return Flow::Error;
  }
  e.push(Py_NewRef(value));
  return Flow::Next;
}

inline Flow inlineLoadConst(Evaluation& e, const Instruction& i) {
  e.push(Py_NewRef(i.object));
  return Flow::Next;
}

inline Flow inlineStoreFast(Evaluation& e, const Instruction& i) {
  PyObject* old = e.locals[i.arg];
  e.locals[i.arg] = e.pop();
  Py_XDECREF(old);
  return Flow::Next;
}

inline Flow inlinePopTop(Evaluation& e, const Instruction&) {
  e.drop();
  return Flow::Next;
}

inline Flow inlinePushNull(Evaluation& e, const Instruction&) {
  e.push(nullptr);
  return Flow::Next;
}

inline Flow inlineSwap(Evaluation& e, const Instruction& i) {
  std::swap(e.top(), e.peek(i.arg));
  return Flow::Next;
}

inline Flow inlineCopy(Evaluation& e, const Instruction& i) {
  e.push(Py_XNewRef(e.peek(i.arg)));
  return Flow::Next;
}

inline Flow jump(Evaluation& e, const Instruction& i) {
  e.jump(i);
  return i.flag ? Flow::PendingJump : Flow::Next;
}

inline Flow inlineJump(Evaluation& e, const Instruction& i) { return jump(e, i); }

inline int truth(Evaluation& e, PyObject* value) {
  if (value == Py_True) return 1;
  if (value == Py_False) return 0;
  return e.operations.truth(value);
}

inline Flow popJumpIf(Evaluation& e, const Instruction& i, int wanted) {
  PyObject* value = e.pop();
  const int found = truth(e, value);
  Py_DECREF(value);
  if (found == wanted) return jump(e, i);
  return found < 0 ? Flow::Error : Flow::Next;
}

inline Flow inlinePopJumpIfFalse(Evaluation& e, const Instruction& i) { return popJumpIf(e, i, 0); }
inline Flow inlinePopJumpIfTrue(Evaluation& e, const Instruction& i) { return popJumpIf(e, i, 1); }

inline Flow popJumpIfNone(Evaluation& e, const Instruction& i, bool wanted) {
  PyObject* value = e.pop();
  const bool none = e.operations.is(value, Py_None);
  Py_DECREF(value);
  return none == wanted ? jump(e, i) : Flow::Next;
}

inline Flow inlinePopJumpIfNone(Evaluation& e, const Instruction& i) {
  return popJumpIfNone(e, i, true);
}

inline Flow inlinePopJumpIfNotNone(Evaluation& e, const Instruction& i) {
  return popJumpIfNone(e, i, false);
}

inline Flow jumpIfOrPop(Evaluation& e, const Instruction& i, int wanted) {
  const int found = truth(e, e.top());
  if (found < 0) return Flow::Error;
  if (found == wanted) return jump(e, i);
  e.drop();
  return Flow::Next;
}

inline Flow inlineJumpIfFalseOrPop(Evaluation& e, const Instruction& i) {
  return jumpIfOrPop(e, i, 0);
}

inline Flow inlineJumpIfTrueOrPop(Evaluation& e, const Instruction& i) {
  return jumpIfOrPop(e, i, 1);
}

// Not where `yield from` and `await` go on (2 and more): an interrupt belongs to the innermost
// generator.
inline Flow inlineResume(Evaluation&, const Instruction& i) {
  return i.arg < 2 ? Flow::Pending : Flow::Next;
}

inline Flow inlineKeywordNames(Evaluation& e, const Instruction& i) {
  e.kwnames = i.object;
  return Flow::Next;
}

inline Flow inlineReturnValue(Evaluation& e, const Instruction&) {
  e.result = e.pop();
  return Flow::Return;
}

inline Flow inlineYieldValue(Evaluation& e, const Instruction&) {
  e.result = e.pop();
  return Flow::Yield;
}

class FrameLoop {
 public:
  FrameLoop(PyThreadState* thread, FrameView frame, Operations& operations,
            const cpython::DecodedCode* decoded)
      : frame_(frame),
        running_(thread, frame),
        pending_(cpython::pendingWorkFlag(thread)),
        units_(reinterpret_cast<_Py_CODEUNIT*>(frame.code()->co_code_adaptive)),
        e_{thread,
           operations,
           frame,
           frame.code(),
           decoded,
           frame.fastLocals(),
           running_.stackPointer(),
           decoded->atUnit(frame.instruction() + 1)} {}

  PyObject* run(bool throwing);

 private:
  // Runs instructions until one ends the frame, or an error may find a handler.
  Flow step();
  Flow afterPending(const Instruction& instruction, Flow flow);
  bool unwind(Flow flow);  // false: no handler
  void addTraceback();
  PyObject* finish(Flow flow);
  PyObject* delegate();

  FrameView frame_;
  RunningFrame running_;
  const volatile int* pending_;
  _Py_CODEUNIT* units_;
  Evaluation e_;
  int32_t raisedAt_ = 0;  // the unit by which the handler is looked up
  uint64_t count_ = 0;
};

Flow FrameLoop::step() {
  _Py_CODEUNIT** const current = running_.instruction();
  uint64_t count = 0;
  for (;;) {
    const Instruction& i = *e_.next++;
    *current = units_ + i.unit;
    count++;
    Flow flow = Flow::Next;
    switch (i.op) {
#define INLINE(name)            \
  case Op::name:                \
    flow = inline##name(e_, i); \
    break;
#define FAMILY(name, family)  \
  case Op::name:              \
    flow = eval##name(e_, i); \
    break;
#include "cpython/instructions.def"
    }
    if (flow == Flow::Next) [[likely]]
      continue;
    if (flow == Flow::Pending || flow == Flow::PendingJump) {
      if (!*pending_ && !running_.tracing()) [[likely]]
        continue;
      flow = afterPending(i, flow);
      if (flow == Flow::Next) continue;
    } else {
      raisedAt_ = i.unit;
    }
    count_ += count;
    return flow;
  }
}

Flow FrameLoop::afterPending(const Instruction& i, Flow flow) {
  if (*pending_ && cpython::doPendingWork(e_.thread) < 0) {
    // CPython has moved on by then: it looks up the unit before the next one it would run.
    raisedAt_ = (flow == Flow::PendingJump ? i.next - i.arg : i.next) - 1;
    return Flow::Error;
  }
  // Someone has called sys.settrace() or sys.setprofile(): what follows must be seen by it.
  return running_.tracing() ? Flow::Delegate : Flow::Next;
}

void FrameLoop::addTraceback() {
  e_.kwnames = nullptr;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "error return without exception set");
  if (running_.incomplete()) return;
  if (PyFrameObject* object = PyEval_GetFrame()) PyTraceBack_Here(object);
  if (running_.tracing()) cpython::reportException(e_.thread);
}

bool FrameLoop::unwind(Flow flow) {
  if (flow == Flow::Error) addTraceback();
  const cpython::ExceptionHandler* handler = e_.decoded->handlerOf(raisedAt_);
  PyObject** level = running_.stackBase() + (handler ? handler->depth : 0);
  while (e_.stack > level) {
    PyObject* value = e_.pop();
    Py_XDECREF(value);
  }
  if (!handler) {
    if (running_.tracing()) cpython::reportUnwinding(e_.thread);
    return false;
  }
  if (handler->pushUnit) e_.push(PyLong_FromLong(frame_.instruction()));
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  e_.push(value);
  e_.next = e_.decoded->atUnit(handler->target);
  return true;
}

PyObject* FrameLoop::finish(Flow flow) {
  EvaluationCounts& counts = threadCounts();
  counts.frames++;
  counts.instructions += count_;
  if (flow == Flow::Delegate) return delegate();
  if (running_.tracing() && e_.result) {  // the tracer is told by the default evaluator
    e_.push(std::exchange(e_.result, nullptr));
    e_.next--;
    return delegate();
  }
  if (flow == Flow::Yield) running_.suspendGenerator();
  e_.operations.leaveFrame(frame_, e_.result, flow == Flow::Yield);
  running_.leave(e_.stack);
  return e_.result;
}

PyObject* FrameLoop::delegate() {
  threadCounts().delegated++;
  e_.operations.delegateFrame(frame_);
  e_.operations.leaveFrame(frame_, nullptr, false);
  frame_.setInstruction(e_.next->unit - e_.next->prefix - 1);
  running_.leave(e_.stack);
  return cpython::evaluateByDefault(e_.thread, frame_.raw(), 0);
}

PyObject* FrameLoop::run(bool throwing) {
  if (!running_.enter()) return nullptr;
  // What is thrown into a generator that has not begun leaves it at once.
  const bool resumed = throwing || (frame_.isGenerator() && !running_.firstResumption());
  e_.operations.enterFrame(frame_, resumed);
  raisedAt_ = frame_.instruction();
  Flow flow = throwing ? Flow::Error : step();
  while ((flow == Flow::Error || flow == Flow::Unwind) && unwind(flow))
    flow = running_.tracing() ? Flow::Delegate : step();
  return finish(flow);
}

}  // namespace

PyObject* evaluateFrame(PyThreadState* thread, FrameView frame, bool throwing,
                        Operations& operations) {
  const cpython::DecodedCode* decoded = cpython::decodedCode(frame.code());
  if (!decoded) return nullptr;
  return FrameLoop(thread, frame, operations, decoded).run(throwing);
}

}  // namespace glowplug::trace
