#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/trace.h"

// What the .def files say of each kind, for code that treats kinds alike: printer, parser,
// verifier, reports.
namespace glowplug::ir {

// The one member, besides parents and children, that a source, guard or recipe of a kind uses.
enum class Payload : uint8_t { None, Index, Key, Object, Other, Number, Meta, Source, Value };

struct StepInfo {
  std::string_view name;
  bool root;
  Payload payload;
};

struct PredicateInfo {
  std::string_view name;
  Payload payload;
  std::string_view meaning;
};

struct RecipeInfo {
  std::string_view name;
  Payload payload;
  std::string_view children;  // pattern, explained in recipes.def
  std::string_view meaning;
};

struct EventInfo {
  std::string_view name;
  std::string_view positional;  // members by their names in text, separated by spaces
  std::string_view optional;
  std::string_view meaning;
};

struct EffectInfo {
  std::string_view name;
  int least;
  int most;  // -1: any number
  std::string_view operands;
};

const StepInfo& info(StepKind kind);
const PredicateInfo& info(PredicateKind kind);
const RecipeInfo& info(RecipeKind kind);
const EventInfo& info(EventKind kind);
const EffectInfo& info(EffectKind kind);

std::string_view nameOf(StepKind kind);
std::string_view nameOf(PredicateKind kind);
std::string_view nameOf(RecipeKind kind);
std::string_view nameOf(EventKind kind);
std::string_view nameOf(EffectKind kind);
std::string_view nameOf(ValueKind kind);
std::string_view nameOf(StateChange::Kind kind);

// The kind of that name in text; defined for the enums above.
template <class Kind>
std::optional<Kind> kindNamed(std::string_view name);

// How many kinds there are.
template <class Kind>
size_t kindCount();

}  // namespace glowplug::ir
