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
  struct _PyInterpreterFrame* chained = nullptr;
  EvaluationCounts counts;
};

thread_local ThreadState threadState;

// Stands for "no evaluation" where a scope is open further out.
Operations& paused() {
  static Operations operations;
  return operations;
}

// Under the GIL.
Operations* allThreads = nullptr;
size_t users = 0;
cpython::FrameEvaluator previous = cpython::defaultEvaluator();

// Frames that are not ours go to whoever evaluated them before us. If that one was put over us
// later and hands them back, the default evaluator takes them.
PyObject* chain(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throwing) {
  if (threadState.chained == frame) return cpython::evaluateByDefault(thread, frame, throwing);
  struct _PyInterpreterFrame* outer = std::exchange(threadState.chained, frame);
  PyObject* result = previous(thread, frame, throwing);
  threadState.chained = outer;
  return result;
}

PyObject* evaluateHere(PyThreadState* thread, struct _PyInterpreterFrame* raw, int throwing) {
  Operations* operations = threadState.current ? threadState.current : allThreads;
  if (!operations || operations == &paused()) return chain(thread, raw, throwing);
  cpython::FrameView frame(raw);
  if (cpython::makesGenerator(frame)) return cpython::evaluateByDefault(thread, raw, throwing);
  if (thread->cframe->use_tracing) {
    threadState.counts.delegated++;
    operations->delegateFrame(frame);
    return cpython::evaluateByDefault(thread, raw, throwing);
  }
  return evaluateFrame(thread, frame, throwing != 0, *operations);
}

// The hook.
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
  if (users++) return;
  cpython::FrameEvaluator installed = cpython::installedEvaluator();
  if (installed == evaluate) return;
  previous = installed;
  cpython::installEvaluator(evaluate);
}

void removeUser() {
  if (--users) return;
  // Another hook that was put over ours keeps calling it; it must find the way on.
  if (cpython::installedEvaluator() != evaluate) return;
  cpython::installEvaluator(previous);
}

}  // namespace

EvaluationScope::EvaluationScope(Operations& operations)
    : outer_(std::exchange(threadState.current, &operations)) {
  addUser();
}

EvaluationScope::~EvaluationScope() {
  removeUser();
  threadState.current = outer_;
}

EvaluationPause::EvaluationPause() : outer_(std::exchange(threadState.current, &paused())) {}
EvaluationPause::~EvaluationPause() { threadState.current = outer_; }

void evaluateAllThreads(Operations* operations) {
  if (operations && !allThreads) addUser();
  if (!operations && allThreads) removeUser();
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
  removeUser();
}

Operations& plainOperations() { return plain(); }

EvaluationCounts& threadCounts() { return threadState.counts; }

EvaluationCounts takeEvaluationCounts() {
  return std::exchange(threadState.counts, EvaluationCounts());
}

}  // namespace glowplug::trace
