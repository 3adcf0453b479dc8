#include "trace/evaluator.h"

#include <utility>

#include "cpython/eval_hook.h"
#include "cpython/running_frame.h"
#include "trace/evaluation.h"
#include "trace/evaluator_stack.h"

// Which frames are evaluated by us, and with which Operations.
namespace glowplug::trace {

namespace {

struct ThreadState {
  Operations* current = nullptr;  // nullptr: those of all threads, if there are any
  EvaluationCounts counts;
};

thread_local ThreadState threadState;

// Stands for "no evaluation" where a scope is open further out.
Operations& paused() {
  static Operations operations;
  return operations;
}

Operations* allThreads = nullptr;  // under the GIL

PyObject* evaluateHere(PyThreadState* thread, struct _PyInterpreterFrame* raw, int throwing) {
  Operations* operations = threadState.current ? threadState.current : allThreads;
  if (!operations || operations == &paused())
    return cpython::evaluateByPrevious(thread, raw, throwing);
  cpython::FrameView frame(raw);
  if (cpython::makesGenerator(frame)) return cpython::evaluateByDefault(thread, raw, throwing);
  if (thread->cframe->use_tracing) {
    threadState.counts.delegated++;
    operations->delegateFrame(frame);
    return cpython::evaluateByDefault(thread, raw, throwing);
  }
  return evaluateFrame(thread, frame, throwing != 0, *operations);
}

// What our hook hands frames to.
PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* raw, int throwing) {
  if (!stackIsLow()) [[likely]]
    return evaluateHere(thread, raw, throwing);
  struct Call {
    PyThreadState* thread;
    struct _PyInterpreterFrame* frame;
    int throwing;
    PyObject* result;
  } call{thread, raw, throwing, nullptr};
  callOnFurtherStack(
      [](void* argument) {
        auto* call = static_cast<Call*>(argument);
        call->result = evaluateHere(call->thread, call->frame, call->throwing);
      },
      &call);
  return call.result;
}

void addUser() {
  cpython::setFrameHandler(evaluate);
  cpython::addHookUser();
}

}  // namespace

EvaluationScope::EvaluationScope(Operations& operations)
    : outer_(std::exchange(threadState.current, &operations)) {
  addUser();
}

EvaluationScope::~EvaluationScope() {
  cpython::removeHookUser();
  threadState.current = outer_;
}

EvaluationPause::EvaluationPause() : outer_(std::exchange(threadState.current, &paused())) {}
EvaluationPause::~EvaluationPause() { threadState.current = outer_; }

void evaluateAllThreads(Operations* operations) {
  if (operations && !allThreads) addUser();
  if (!operations && allThreads) cpython::removeHookUser();
  allThreads = operations;
}

namespace {

Operations& plain() {
  static Operations operations;
  return operations;
}

}  // namespace

void startEvaluateOnly() {
  if (threadState.current == &plain()) return;
  threadState.current = &plain();
  addUser();
}

void stopEvaluateOnly() {
  if (threadState.current != &plain()) return;
  threadState.current = nullptr;
  cpython::removeHookUser();
}

Operations& plainOperations() { return plain(); }

EvaluationCounts& threadCounts() { return threadState.counts; }

EvaluationCounts takeEvaluationCounts() {
  return std::exchange(threadState.counts, EvaluationCounts());
}

}  // namespace glowplug::trace
