#pragma once

// Private to replay/.

#include <unordered_map>

#include "guard/late_guards.h"
#include "replay/plan.h"
#include "replay/recipe.h"
#include "replay/undo.h"

namespace glowplug::replay {

// Calls visitor for every value in an operand.
void visitValues(const ir::Operand& operand, const std::function<void(common::ValueId)>& visitor);
// An operator whose results are numbers that go to Python, not tensors.
bool givesScalar(const ir::Trace& trace, const ir::Event& event);
// The event that makes each value first, or -1; inputs are there from the start.
std::vector<int64_t> makers(const ir::Trace& trace);

// When effects are committed. Effects are numbered in program order.
struct CommitPoints {
  CommitPoints(const ir::Trace& trace, const std::vector<int64_t>& madeAt);

  std::vector<size_t> events;       // of each effect
  std::vector<int64_t> latest;      // event that makes the last value an effect needs, or -1
  std::vector<size_t> committedAt;  // event that commits an effect: an opaque call or the last
  std::unordered_map<size_t, size_t> countAt;  // by opaque event: effects [0, n) are done before it
};

// What is checked after an opaque call.
struct LateCheck {
  std::unique_ptr<guard::LateGuards> guards;
  // The guards' wanted objects: first those that the trace takes from what is there now, then those
  // that must still be the ones that the replay has.
  std::vector<common::SourceId> taken, kept;
};

struct Step {
  enum class Kind : uint8_t {
    Operators,  // events [begin, end): Op, State and Input
    Segment,    // a backend runs events [begin, end); index: which
    Guard,      // Sizes or Fork, at begin
    Opaque,     // at begin
    Drop,       // values in drops of [begin, end)
    Return,     // at begin
  };
  Kind kind;
  bool writesInput = false;
  uint32_t index = 0;
  size_t begin = 0, end = 0;
};

// How a plan runs now. A running call keeps the one it began with, so that another thread can add a
// joined plan or a backend at any time.
struct Schedule {
  std::vector<std::vector<common::ValueId>> drops;  // by event: values that nobody needs after it
  std::shared_ptr<const aten::OpProgram> program;
  std::shared_ptr<const aten::NativeCode> native;  // of the program
  std::vector<cpython::Ref> backends;              // by segment
  std::vector<Step> steps;
  std::vector<std::pair<common::ValueId, size_t>> bound;  // inputs of operators; index in wanted
};

// One call's replay: values, what has been built, what waits to be committed.
struct Context final : RecipeInputs, guard::LateObjects {
  Context(const Plan::Impl& plan, std::shared_ptr<const Schedule> schedule,
          const guard::Call& call);
  // Takes the objects at the plan's sources. False: one of the objects the trace names has died.
  bool bind(std::vector<cpython::Ref> objects);
  // Every value is here that `next` needs to go on from the event: a backend has not kept it to
  // itself, and it was not dropped.
  bool hasAllFor(const Plan::Impl& next, size_t event) const;
  // Forgets what belongs to the plan that stopped at the event, so that `next` can go on.
  void handOver(const Plan::Impl& next, std::shared_ptr<const Schedule> schedule, size_t event);
  void takeBackRandom() {
    if (random) random->restore();
  }

  PyObject* value(common::ValueId id) override;
  PyObject* source(common::SourceId id) override;
  PyObject* result(common::ValueId id) const override;
  cpython::Ref takeResult(common::ValueId id);  // the context holds it no longer
  PyObject* built(common::RecipeId id) const override;
  cpython::Ref build(common::RecipeId id);

  const Plan::Impl* plan;
  std::shared_ptr<const Schedule> schedule;
  guard::Call call;
  size_t capacity;
  aten::Values values;
  RecipeMemo memo;
  std::vector<cpython::Ref> fetched;                   // by index in wanted()
  std::vector<cpython::Ref> named;                     // objects that the table holds weakly
  std::unordered_map<uint32_t, cpython::Ref> objects;  // numbers and results of opaque calls
  std::vector<cpython::Ref> late;                      // by Plan::Impl::lateIndex
  std::unique_ptr<aten::RandomState> random;           // before the first draw, to take it back
  std::unique_ptr<aten::StateRestore> state;  // torch's thread state before the first change
  size_t committedEffects = 0;
  bool committed = false;  // something has happened that cannot be taken back
  // The last call was taken to keep to itself, and code of the program's own ran in it.
  bool programRan = false;
  cpython::UndoLog undo;  // what has been committed while the replay may still stop
  size_t flushedAt = 0;   // the opaque call before which effects were committed last
};

struct Suspended::State {
  std::unique_ptr<Context> context;
  uint64_t origin;  // Impl::serial
  size_t event;     // where it stopped
  size_t done;      // events before this one have been done
  // What an opaque call at `event` raised.
  cpython::Ref error, errorValue, errorTraceback;
};

struct Plan::Impl {
  // A plan that begins with the same events up to the late guard `event`.
  struct Joined {
    Impl* other;
    size_t event;
  };
  using Objects = std::vector<cpython::Ref>;
  // An effect, ready to be committed.
  struct Pending {
    size_t effect;
    Objects operands;
  };

  Impl(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops);
  ~Impl();

  // plan.cpp
  void want(common::SourceId source);
  void findGradOwners();
  void collectUses();
  void collectLives();
  void addInput(const ir::Event& event);
  void findSegments();
  void findEdges(Segment& segment) const;
  std::vector<std::vector<common::ValueId>> lastUses() const;
  std::vector<Step> steps(const std::vector<cpython::Ref>& backends) const;
  size_t addSegmentSteps(std::vector<Step>& steps, size_t index) const;
  void refresh(std::vector<cpython::Ref> backends, std::shared_ptr<const aten::NativeCode> native);
  void takeNative();
  bool savesThroughHooks(size_t event) const;
  bool runsInTier1(size_t event, const std::vector<cpython::Ref>& backends) const;

  // late_checks.cpp
  void findLateChecks();
  size_t findRoot(const ir::Source& root) const;
  void findBuilt() const;
  size_t madeBy(common::SourceId source) const;  // the event that gives what a late path starts at
  size_t askedAfter(const ir::Guard& guard) const;
  bool passes(Context& context, size_t event) const;
  bool passesAgain(Context& context, size_t event) const;

  // join.cpp
  const Joined* joinedWith(uint64_t serial, size_t event) const;

  // run.cpp
  Outcome runFrom(Context& context, size_t event) const;
  Outcome runSteps(Context& context, size_t event) const;
  Outcome suspend(std::unique_ptr<Context> context, Outcome outcome,
                  std::unique_ptr<Suspended>& suspended) const;
  Outcome fail(Context& context, size_t event, bool written = false) const;
  bool runOperators(Context& context, const Step& step, Outcome* outcome) const;
  bool runSegment(Context& context, const Step& step, Outcome* outcome) const;
  bool takeOutputs(Context& context, const Segment& segment, PyObject* result) const;
  bool runOpaque(Context& context, const Step& step, Outcome* outcome) const;
  bool callOpaque(Context& context, size_t number) const;
  static bool takeTensors(Context& context, const ir::Event& event, PyObject* tuple);
  bool isMet(Context& context, size_t event) const;
  Outcome finish(Context& context, size_t event) const;

  // effect.cpp
  bool prepareEffect(Context& context, size_t effect, std::vector<Pending>& pending) const;
  bool prepareEffects(Context& context, size_t end, std::vector<Pending>& pending) const;
  bool commit(Context& context, const std::vector<Pending>& pending, bool last) const;
  void commitBeforeError(Context& context, size_t event) const;
  bool doEffect(const ir::Event& event, const Objects& operands) const;

  const ir::Trace& trace;
  const cpython::ObjectTable& objects;
  const aten::OpTable& ops;
  const uint64_t serial;
  std::vector<common::SourceId> wanted;
  std::vector<int32_t> wantedIndex;                  // by SourceId, or -1
  std::vector<int32_t> inputIndex;                   // by ValueId: in wanted, or -1
  std::vector<common::SourceId> lateWanted;          // found in the middle of the call
  std::vector<int32_t> lateIndex;                    // by SourceId: in lateWanted, or -1
  std::unordered_map<size_t, LateCheck> lateChecks;  // by opaque event
  mutable std::unordered_map<common::SourceId, size_t> foundBy;  // answers of madeBy()
  mutable std::vector<size_t> builtAt;  // by recipe: the call before which it is built first
  size_t firstCommit = SIZE_MAX;        // the first event that cannot be taken back
  bool stopsAfterCommit = false;        // it may stop behind firstCommit
  std::vector<size_t> diesAt;           // by ValueId: event before which the program let go of it
  std::vector<std::pair<common::ValueId, size_t>> inputs;  // value, index in wanted
  std::vector<common::ObjectId> named;                     // weakly held objects of recipes
  std::vector<std::vector<uint32_t>> uses;  // events that use a value, ascending, by ValueId
  std::vector<int64_t> madeAt;              // by ValueId
  CommitPoints commits;
  std::vector<Segment> segments;
  std::vector<int> segmentOf;  // by event: the segment whose range holds it, or -1
  std::vector<Joined> joined;
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<NativeSlot> nativeSlot = std::make_shared<NativeSlot>();
  size_t valueCapacity = 0;        // of the largest joined trace
  std::vector<size_t> gradOwners;  // wanted tensors whose .grad an unknown call may change
  bool hasState = false, hasRandom = false;
};

}  // namespace glowplug::replay
