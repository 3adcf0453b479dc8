#pragma once

#include <unordered_map>
#include <unordered_set>

#include "replay/plan.h"
#include "replay/recipe.h"

namespace glowplug::replay {

// One call's replay: values, what has been built, what waits to be committed.
struct Context {
  Context(size_t values, size_t recipes) : values(values), memo(recipes) {}

  aten::Values values;
  RecipeMemo memo;
  std::vector<cpython::Ref> fetched;            // by index in wanted()
  std::unordered_map<uint32_t, cpython::Ref> objects;  // results of opaque calls, by ValueId
  std::unique_ptr<aten::RandomState> random;    // before the first draw, while it may have to be taken back
  std::unique_ptr<aten::StateRestore> state;    // torch's thread state before the first change
  size_t committedEffects = 0;                  // effects already done, as an index into Impl::effects
  bool committed = false;                       // something has happened that cannot be taken back
};

struct Suspended::State {
  Context context;
  const Plan::Impl* origin;
  size_t event;
};

struct Plan::Impl {
  // A plan that begins with the same events up to the late guard `event`.
  struct Joined {
    Impl* other;
    size_t event;
  };

  Impl(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops);
  ~Impl();

  void collectUses();
  void findSegments();
  size_t want(common::SourceId source);
  std::vector<std::vector<common::ValueId>> lastUses() const;
  void refreshLastUses() { program->setLastUses(drops = lastUses()); }

  Outcome runFrom(Context& context, size_t event, std::unique_ptr<Suspended>& suspended);
  Outcome fail(Context& context, size_t event) const;
  bool runOps(Context& context, size_t begin, size_t end, Outcome* outcome) const;
  bool runSegment(Context& context, size_t index) const;
  bool callOpaque(Context& context, const ir::Event& event) const;
  bool commitEffects(Context& context, size_t before) const;
  bool doEffect(const ir::Event& event, const std::vector<cpython::Ref>& operands) const;
  bool isMet(const Context& context, const ir::Event& event) const;
  void bindInputs(Context& context, PyObject* const* fetched) const;
  RecipeContext recipeContext(Context& context) const;
  PyObject* valueObject(Context& context, common::ValueId id) const;
  // The segment with a backend that begins with this event, or -1.
  int loweredSegmentAt(size_t event) const;

  const ir::Trace& trace;
  const cpython::ObjectTable& objects;
  const aten::OpTable& ops;
  std::vector<common::SourceId> wanted;
  std::unordered_map<uint32_t, size_t> wantedIndex;   // by SourceId
  std::vector<std::pair<common::ValueId, size_t>> inputs;  // value, index in wanted
  std::vector<size_t> effects;                        // events
  std::vector<std::vector<uint32_t>> uses;            // events that use a value, ascending, by ValueId
  std::vector<int64_t> madeAt;                        // event that makes a value, by ValueId
  std::vector<std::vector<common::ValueId>> drops;    // by event
  std::unique_ptr<aten::OpProgram> program;
  std::vector<Segment> segments;
  std::vector<cpython::Ref> backends;                 // by segment
  std::vector<int> segmentOf;                         // by event: the segment whose range holds it, or -1
  std::vector<Joined> joined;
  size_t valueCapacity = 0;                           // of the largest joined trace
  bool hasState = false, hasRandom = false;
};

}  // namespace glowplug::replay
