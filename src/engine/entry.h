#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/reasons.h"
#include "cpython/ref.h"
#include "engine/native.h"
#include "engine/phases.h"
#include "guard/guard_tree.h"
#include "replay/plan.h"
#include "replay/rerun.h"
#include "trace/follow.h"
#include "trace/recording.h"

namespace glowplug::engine {

// What is to be done with a recording's segments.
struct Backend {
  std::string name = "native";
  cpython::Ref lower;  // callable(graph: dict) -> callable(*tensors) -> tensors; nothing: tier 1
};

// One trace of an entry, ready to replay.
struct CompiledTrace {
  std::shared_ptr<trace::Recording> recording;
  std::unique_ptr<replay::Plan> plan;
  size_t number = 0;  // in its group's guard tree
  double recordSeconds = 0;
  std::vector<common::Refusal> breaks;
  bool fork = false;                  // one side of a branch on a value
  std::shared_ptr<NativeJob> native;  // none: tier 1, or a backend
};

// The traces recorded under one thread state of torch (grad mode, autocast, default dtype...).
struct TraceGroup {
  aten::StateSnapshot state;
  guard::GuardTree guards;
  std::vector<std::shared_ptr<CompiledTrace>> traces;
};

class CalleeEntries;

// What glowplug.compile() made of one callable: its traces, and the policy of when to record,
// replay or step aside. Calls may come from any thread; the GIL protects the entry's own state, and
// a call keeps the trace that it runs alive.
class Entry {
 public:
  Entry(PyObject* callable, std::string name, Backend backend, common::Options options,
        bool fullgraph);
  // One that is given its callable with each call, and keeps nothing of it (CalleeEntries).
  Entry(std::nullptr_t, std::string name, Backend backend, common::Options options, size_t depth);
  ~Entry();
  Entry(const Entry&) = delete;

  // As vectorcall. New reference, or nullptr with a Python error set.
  PyObject* call(PyObject* const* args, size_t positional, PyObject* kwnames);
  PyObject* callAs(const guard::Call& call);

  // Why a call made here and now runs the original, whatever entry it is of; nullptr: it does not.
  static const char* bypassReason();

  // Forgets all traces; the next call records again.
  void reset();

  PyObject* callable() const { return callable_.get(); }
  const std::string& name() const { return name_; }
  const std::vector<std::shared_ptr<TraceGroup>>& groups() const { return groups_; }
  const std::optional<common::Refusal>& eager() const { return eager_; }
  // Why the last recording that came to nothing did; another call may be recorded.
  const std::optional<common::Refusal>& lastRefusal() const { return lastRefusal_; }
  // Of what it calls, while it stays eager itself.
  std::vector<std::shared_ptr<Entry>> callees() const;
  uint64_t id() const { return id_; }
  const common::Options& options() const { return options_; }
  // Some trace has machine code that may round otherwise than eager: kernels, packed weights.
  bool roundsOtherwise() const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Timing;
  using Objects = std::vector<cpython::Ref>;
  PyObject* original(const guard::Call& call) const;
  PyObject* stayEager(const guard::Call& call, Timing& timing);
  PyObject* stepAside(const guard::Call& call, const char* reason, Timing& timing);
  PyObject* record(const guard::Call& call, Timing& timing, trace::Follow* follow);
  PyObject* goOn(const guard::Call& call, std::unique_ptr<replay::Suspended> suspended,
                 Timing& timing);
  static std::string exitText(const CompiledTrace& trace, size_t event);
  void tooManyTraces();
  std::optional<common::Refusal> tooManyForks(const ir::Trace& trace) const;
  PyObject* broken(const common::Refusal& refusal) const;
  PyObject* install(const std::shared_ptr<trace::Recording>& recording, const guard::Call& call,
                    double seconds, std::vector<common::Refusal> breaks, cpython::Ref result);
  PyObject* refused(const common::Refusal& refusal, cpython::Ref result);
  bool makesNative() const {
    return options_.native && backend_.name == "native" && !backend_.lower;
  }
  void compileNative(CompiledTrace& trace, const guard::Call& call);
  void lowerSegments(CompiledTrace& trace, const Objects& fetched);
  // Runs a trace. Handled: *result is the call's; otherwise the caller goes on as if no trace had
  // matched.
  bool replay(TraceGroup& group, size_t number, const guard::Call& call, Objects fetched,
              PyObject** result, Timing& timing);
  replay::Outcome runTrace(TraceGroup& group, std::shared_ptr<CompiledTrace>& trace,
                           const guard::Call& call, Objects fetched,
                           std::unique_ptr<replay::Suspended>& suspended);
  std::shared_ptr<TraceGroup> groupOfThread();
  size_t traceCount() const;
  void dropDead();
  void noteMiss(TraceGroup* group, const guard::Call& call);
  void goEager(common::Refusal refusal);

  cpython::Ref callable_;
  std::string name_;
  Backend backend_;
  common::Options options_;
  std::shared_ptr<aten::PackedWeights> packedWeights_;  // from the first native code on
  bool fullgraph_;
  uint64_t id_;
  std::vector<std::shared_ptr<TraceGroup>> groups_;  // most recently used first
  std::optional<common::Refusal> eager_;             // set: stays eager, for this reason
  std::optional<common::Refusal> lastRefusal_;       // of the last recording that came to nothing
  std::string lastMiss_;                             // the guard that failed last, in words
  size_t failedRecordings_ = 0;
  size_t depth_ = 0;                        // entries that stay eager above this one
  std::shared_ptr<CalleeEntries> callees_;  // once it stays eager
  bool recording_ = false;                  // some thread is recording this entry
};

// A recording is under way on this thread.
bool isRecording();

// What set_stance asks for, for all entries.
enum class Stance { Default, ForceEager, EagerOnRecompile, FailOnRecompile };
void setStance(Stance stance);
Stance stance();

// Graphs of a trace: runs of operators between graph breaks. A fork splits a graph into segments,
// but the program goes on without Python in between.
size_t graphCount(const CompiledTrace& trace);
// Writes what GLOWPLUG_LOGS asks for of a new trace.
void logTrace(const std::string& name, const CompiledTrace& trace);
// The texts of what the trace names, which are made only when somebody wants to read them.
void fillTexts(const CompiledTrace& trace);
// The entry as a dict for reports; new reference. bindings/ documents its keys.
PyObject* describe(const Entry& entry);
// A segment as a dict for backends that take graphs; new reference. `fetched`: the objects at the
// plan's wanted sources, or nothing.
PyObject* graphOf(const CompiledTrace& trace, size_t segment,
                  const std::vector<cpython::Ref>& fetched);

}  // namespace glowplug::engine
