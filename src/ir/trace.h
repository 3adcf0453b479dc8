#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"

// A trace is what one recording leaves: sources, guards over them, and a straight line of events.
//
// The trace itself is plain data without Python or torch: whatever is an object of either is an id
// into a table kept beside the trace (cpython::ObjectTable, aten::OpTable) together with a text
// that names it. So traces print, parse back, are compared and are tested alone.
namespace glowplug::ir {

using common::IValueId;
using common::MetaId;
using common::ObjectId;
using common::OperatorId;
using common::RecipeId;
using common::SiteId;
using common::SourceId;
using common::ValueId;

enum class StepKind : uint8_t {
#define STEP(enumerator, text, root, payload) enumerator,
#include "ir/steps.def"
#undef STEP
};

enum class PredicateKind : uint8_t {
#define PREDICATE(enumerator, text, payload, meaning) enumerator,
#include "ir/predicates.def"
#undef PREDICATE
};

enum class EventKind : uint8_t {
#define EVENT(enumerator, text, positional, optional, meaning) enumerator,
#include "ir/events.def"
#undef EVENT
};

enum class RecipeKind : uint8_t {
#define RECIPE(enumerator, text, payload, children, meaning) enumerator,
#include "ir/recipes.def"
#undef RECIPE
};

enum class EffectKind : uint8_t {
#define EFFECT(enumerator, text, least, most, operands) enumerator,
#include "ir/effects.def"
#undef EFFECT
};

// A line of the user's program that made a guard, an event or a break.
struct Site {
  std::string file;
  std::string function;
  int line = 0;

  bool operator==(const Site&) const = default;
};

// An access path, one step after its parent.
struct Source {
  StepKind step = StepKind::Callee;
  SourceId parent;    // invalid for roots
  ObjectId object;    // Key or Object payload
  int64_t index = 0;  // Index payload
  int64_t since = 0;  // as Guard::since: when it was found first

  bool operator==(const Source&) const = default;
};

struct Guard {
  PredicateKind kind = PredicateKind::TypeIs;
  SourceId source;
  ObjectId object;     // Object payload
  SourceId other;      // Other payload
  MetaId meta;         // Meta payload
  int64_t number = 0;  // Number payload
  // 0: holds when the call begins. Else it need not hold before that many events have run, of which
  // the last is an opaque call that may have changed anything; it is asked then.
  int64_t since = 0;
  SiteId site;

  bool operator==(const Guard&) const = default;
};

enum class ValueKind : uint8_t { Tensor, Scalar, Object };

// A result of an event. Tensors live in slots numbered by ValueId.
struct Value {
  ValueKind kind = ValueKind::Tensor;
  SourceId source;  // of an Input
  MetaId meta;      // of a tensor, as recorded
  // Its sizes may differ from one replay to the next although all guards hold (nonzero,
  // masked_select...).
  bool dataDependent = false;

  bool operator==(const Value&) const = default;
};

struct Operand {
  enum class Kind : uint8_t { None, Value, Const, List };
  Kind kind = Kind::None;
  ValueId value;
  IValueId constant;
  std::vector<Operand> items;  // List: tensors, optional tensors (None) or scalars

  bool operator==(const Operand&) const = default;
};

// What torch.* thread state an operator runs under; events of kind State switch it.
struct StateChange {
  enum class Kind : uint8_t {
    GradMode,
    InferenceMode,
    Call,
    ForwardGradMode,
    BackwardThreads,
    Autocast,
    AutocastDtype,  // number: device type << 8 | on or scalar type
    AutocastCache,
    AutocastNesting,  // number: how many levels are entered (> 0) or left
    AutocastClear,    // the cached casts are dropped
    BelowAutograd,    // operators skip autograd, as inside torch's factory functions
  };
  Kind kind = Kind::GradMode;
  int64_t number = 0;

  bool operator==(const StateChange&) const = default;
};

struct Event {
  EventKind kind = EventKind::Op;
  SiteId site;
  OperatorId op;                  // Op
  std::vector<Operand> operands;  // Op
  std::vector<ValueId>
      results;  // Input: 1; Op: one per returned tensor or scalar, lists flattened; Opaque: 0 or 1
  std::vector<int32_t>
      resultLengths;  // Op: per return of the schema: -1 single, else length of the returned list
  bool writesInput = false;                 // Op: writes a tensor that existed before the call
  bool random = false;                      // Op: draws from a generator
  StateChange state;                        // State
  EffectKind effect = EffectKind::SetAttr;  // Effect
  std::vector<RecipeId> recipes;  // Effect, Opaque (callable, then arguments), Return (one)
  ObjectId
      keywords;  // Opaque, Effect::CallMethod: tuple of the names of the last arguments, if any
  // Opaque: what the callee may do. None of them: anything to whatever the program can reach.
  bool logOnly = false;  // keeps and changes nothing that the program can see
  bool known = false;    // keeps nothing, changes nothing but data of the tensors it is given
  bool pure = false;     // computes a value from values: may be called again, or not at all
  // Opaque: gives tensors of the call their place in autograd's graph, which keeps what it is given
  // as it is then. Nothing else is changed that the program can see.
  bool keeps = false;
  ValueId value;               // Sizes, Fork: what is looked at
  ObjectId expected;           // Fork: the value this trace goes on with
  std::vector<int64_t> sizes;  // Sizes
  // Numbers of the tensors that the program has let go of since the event before. Noted only after
  // something that cannot be taken back: there a replay that stops has to hand on what lives.
  std::vector<int64_t> dead;

  bool operator==(const Event&) const = default;
};

// A value that the trace depends on is looked at in the middle of the call.
inline bool isLateGuard(const Event& event) {
  return event.kind == EventKind::Fork || event.kind == EventKind::Sizes;
}
// Something outside is called, which may be done neither twice nor not at all.
inline bool callsOut(const Event& event) { return event.kind == EventKind::Opaque && !event.pure; }
// A call of which nothing is known: it may change whatever the program can reach.
inline bool mayChangeAnything(const Event& event) {
  return callsOut(event) && !event.logOnly && !event.known && !event.keeps;
}
// A call that looks at what it is given, and neither keeps nor changes anything that the program
// can reach.
inline bool keepsToItself(const Event& event) {
  return callsOut(event) && (event.logOnly || event.known);
}
// A replay may find there that the program goes another way.
inline bool mayStop(const Event& event) { return isLateGuard(event) || callsOut(event); }
// A graph ends there: what Python does in between is not known.
inline bool breaksGraph(const Event& event) {
  return callsOut(event) && !event.logOnly && !event.keeps;
}
// Tensor operators before and after the event cannot be compiled as one.
inline bool endsSegment(const Event& event) { return breaksGraph(event) || event.keeps; }
// Done once: a replay that is followed has done it, and its result is taken from there.
inline bool isTaken(const Event& event) { return callsOut(event) || event.keeps; }
// From here on the call cannot begin again from its start: something has happened outside.
inline bool cannotBeTakenBack(const Event& event) {
  return callsOut(event) || (event.kind == EventKind::Op && event.writesInput);
}

struct Recipe {
  RecipeKind kind = RecipeKind::Const;
  ObjectId object;
  SourceId source;
  ValueId value;
  std::vector<RecipeId> children;  // an invalid id means "absent"

  bool operator==(const Recipe&) const = default;
};

// One recording. Ids index these vectors; objectTexts, ivalueTexts, metaTexts and operatorNames run
// parallel to the tables that hold the real things.
struct Trace {
  std::string name;
  std::vector<Site> sites;
  std::vector<Source> sources;
  std::vector<Guard> guards;
  std::vector<Value> values;
  std::vector<Recipe> recipes;
  std::vector<Event> events;
  std::vector<std::string> objectTexts;
  std::vector<std::string> ivalueTexts;
  std::vector<std::string> metaTexts;
  std::vector<std::string> operatorNames;  // "aten::add.Tensor"

  bool operator==(const Trace&) const = default;
};

}  // namespace glowplug::ir
