#pragma once

#include <Python.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "aten/native_code.h"
#include "aten/op_program.h"
#include "common/shared_slot.h"
#include "cpython/object_table.h"
#include "guard/guard_tree.h"
#include "ir/trace.h"

namespace glowplug::replay {

// A segment of a plan: a run of tensor operators between two points where a value must be concrete.
struct Segment {
  size_t begin = 0, end = 0;             // events
  std::vector<common::ValueId> inputs;   // tensors used, made before begin
  std::vector<common::ValueId> outputs;  // tensors made inside, needed after end
  size_t operators = 0;                  // that a backend is given
};

// How a replay ended.
struct Outcome {
  enum class Kind {
    Returned,  // result is set
    Exited,    // a late guard met a case that this plan does not cover, or a call raised after
               // something was committed: the replay is suspended at that event
    Raised,    // a Python error is set that ends the call
    Retry,     // an operator raised and nothing was committed: the original can run from the start
  };
  Kind kind = Kind::Returned;
  PyObject* result = nullptr;  // new reference
  size_t event = 0;
};

// Where machine code for a plan is left, by any thread at any time; the plan may be gone by then.
// The next run of the plan takes it.
class NativeSlot {
 public:
  void put(std::shared_ptr<const aten::NativeCode> code) {
    code_.store(std::move(code));
    fresh_.store(true, std::memory_order_release);
  }
  // One load while there is nothing new.
  bool hasNew() { return fresh_.load(std::memory_order_acquire); }
  std::shared_ptr<const aten::NativeCode> take() {
    fresh_.store(false, std::memory_order_relaxed);
    return code_.load();
  }

 private:
  common::SharedSlot<const aten::NativeCode> code_;
  std::atomic<bool> fresh_{false};
};

class Suspended;

// One trace made executable.
//
// Events run in order, but effects wait: all of them are committed, in order, when nothing that can
// fail or exit is left (before an opaque call that could see them, and at the end). So until then a
// replay can stop without a trace, and the original program can run from its start. A replay that
// stops later hands what it has done to a run of the program that takes it over (Rerun).
class Plan {
 public:
  // The trace and tables must outlive the plan.
  Plan(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops);
  ~Plan();
  Plan(const Plan&) = delete;

  // Why a trace cannot be replayed (the id of a reason) and the event it is about, or nullptr: an
  // opaque call is given what does not exist yet, or (with the trace's objects given) an object
  // cannot be built.
  static const char* refusal(const ir::Trace& trace, size_t* event,
                             const cpython::ObjectTable* objects = nullptr);

  // Sources whose objects a call needs (inputs, source recipes), in the order run() takes them.
  const std::vector<common::SourceId>& wanted() const;
  const std::vector<Segment>& segments() const;

  // Whether a segment can be run by one call: no change of torch's state inside it, no write after
  // a tensor's contents went to Python, and nothing whose number of results depends on data.
  bool canLower(size_t segment) const;
  // From now on segment `index` is run by callable(*input tensors) -> tuple or list of output
  // tensors.
  void setBackend(size_t index, PyObject* callable);

  // Of each value whether it is needed by anything but the operators in events [begin, end) of the
  // segment; joined plans count.
  std::vector<bool> escapes(size_t segment, size_t end) const;
  // Where in wanted() the object is that is this value from the start; -1 for other values.
  int32_t inputIndex(common::ValueId value) const;
  // The first event after which the call cannot begin again, or SIZE_MAX.
  size_t firstCommit() const;
  const std::shared_ptr<NativeSlot>& nativeSlot() const;

  // Runs from the start. `fetched` are the objects at wanted(). When a late guard is not met, the
  // outcome is Exited and `suspended` holds the replay at that event; Exited with nothing suspended
  // is a replay that no other plan can go on with. Any thread may run a plan that other threads
  // run; the GIL is needed.
  Outcome run(const guard::Call& call, std::vector<cpython::Ref> fetched,
              std::unique_ptr<Suspended>& suspended);
  // A run may stop for another plan after it has changed something: whether that plan's guards hold
  // has to be asked before the run.
  bool stopsAfterCommit() const;
  // The two part at a late guard.
  bool isJoinedWith(const Plan& other) const;
  // Goes on from where another plan stopped; this plan covers() the case. `fetched` as in run().
  Outcome resume(const guard::Call& call, std::vector<cpython::Ref> fetched,
                 std::unique_ptr<Suspended>& suspended);

  // When both plans begin with the same events and first differ in the outcome of a late guard,
  // lets each take over from the other there, and returns true.
  static bool join(Plan& first, Plan& second);
  bool covers(Suspended& suspended) const;

  int traverse(visitproc visit, void* arg) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// A replay that stopped. Dropping it ends the replay: torch's thread state and, if nothing was
// committed, random numbers are as before it.
class Suspended {
 public:
  struct State;
  explicit Suspended(std::unique_ptr<State> state);
  ~Suspended();
  // Something has happened that cannot be taken back: the call must go on from here.
  bool committed() const;
  // It stopped since a call that was taken to keep to itself ran code of the program's own: the
  // plan is wrong about it.
  bool programRan() const;
  std::unique_ptr<State> state;
};

}  // namespace glowplug::replay
