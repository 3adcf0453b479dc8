#pragma once

#include "trace/operations.h"

namespace glowplug::trace {

// While one lives, every Python frame that this thread starts is evaluated by Glowplug with the
// given Operations; other threads go to whatever evaluated frames before. Scopes nest: the
// innermost counts. The frame-evaluation hook is installed while at least one scope of any thread
// lives.
class EvaluationScope {
 public:
  explicit EvaluationScope(Operations& operations);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  Operations* outer_;
};

// While one lives, frames of this thread go to the default evaluator although a scope is open
// (used while an opaque callee runs, and by Glowplug's own Python helpers).
class EvaluationPause {
 public:
  EvaluationPause();
  ~EvaluationPause();

 private:
  Operations* outer_;
};

// Every frame of every thread that has no scope and no pause of its own is evaluated with these
// Operations, until called with nullptr. They must outlive the frames that have begun.
void evaluateAllThreads(Operations* operations);

// Operations that only do what CPython does.
Operations& plainOperations();
// Evaluation without recording, of this thread, from one call to the other.
void startEvaluateOnly();
void stopEvaluateOnly();

struct EvaluationCounts {
  uint64_t frames = 0;  // evaluated
  uint64_t instructions = 0;
  uint64_t delegated = 0;  // frames given to the default evaluator whole (under sys.settrace...)
};
// Of this thread, since the last call.
EvaluationCounts takeEvaluationCounts();

}  // namespace glowplug::trace
