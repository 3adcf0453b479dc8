#include "ir/tables.h"

#include <iterator>
#include <string>
#include <type_traits>

#include "common/name_table.h"

namespace glowplug::ir {
namespace {

constexpr StepInfo kSteps[] = {
#define STEP(enumerator, text, root, payload) {text, root, Payload::payload},
#include "ir/steps.def"
#undef STEP
};

constexpr PredicateInfo kPredicates[] = {
#define PREDICATE(enumerator, text, payload, meaning) {text, Payload::payload, meaning},
#include "ir/predicates.def"
#undef PREDICATE
};

constexpr RecipeInfo kRecipes[] = {
#define RECIPE(enumerator, text, payload, children, meaning) \
  {text, Payload::payload, children, meaning},
#include "ir/recipes.def"
#undef RECIPE
};

constexpr EventInfo kEvents[] = {
#define EVENT(enumerator, text, positional, optional, meaning) \
  {text, positional, optional, meaning},
#include "ir/events.def"
#undef EVENT
};

constexpr EffectInfo kEffects[] = {
#define EFFECT(enumerator, text, least, most, operands) {text, least, most, operands},
#include "ir/effects.def"
#undef EFFECT
};

struct NameOnly {
  std::string_view name;
};
constexpr NameOnly kValues[] = {{"tensor"}, {"scalar"}, {"object"}};
constexpr NameOnly kStates[] = {{"grad_mode"},         {"inference_mode"},   {"call"},
                                {"forward_grad_mode"}, {"backward_threads"}, {"autocast"},
                                {"autocast_dtype"},    {"autocast_cache"},   {"autocast_nesting"},
                                {"autocast_clear"},    {"below_autograd"}};
static_assert(std::size(kStates) == static_cast<size_t>(StateChange::Kind::BelowAutograd) + 1);

template <class Kind>
constexpr const auto& rows() {
  if constexpr (std::is_same_v<Kind, StepKind>)
    return kSteps;
  else if constexpr (std::is_same_v<Kind, PredicateKind>)
    return kPredicates;
  else if constexpr (std::is_same_v<Kind, RecipeKind>)
    return kRecipes;
  else if constexpr (std::is_same_v<Kind, EventKind>)
    return kEvents;
  else if constexpr (std::is_same_v<Kind, EffectKind>)
    return kEffects;
  else if constexpr (std::is_same_v<Kind, ValueKind>)
    return kValues;
  else
    return kStates;
}

template <class Kind>
const auto& row(Kind kind) {
  return common::rowOf(rows<Kind>(), kind);
}

}  // namespace

const StepInfo& info(StepKind kind) { return row(kind); }
const PredicateInfo& info(PredicateKind kind) { return row(kind); }
const RecipeInfo& info(RecipeKind kind) { return row(kind); }
const EventInfo& info(EventKind kind) { return row(kind); }
const EffectInfo& info(EffectKind kind) { return row(kind); }

std::string_view nameOf(StepKind kind) { return row(kind).name; }
std::string_view nameOf(PredicateKind kind) { return row(kind).name; }
std::string_view nameOf(RecipeKind kind) { return row(kind).name; }
std::string_view nameOf(EventKind kind) { return row(kind).name; }
std::string_view nameOf(EffectKind kind) { return row(kind).name; }
std::string_view nameOf(ValueKind kind) { return row(kind).name; }
std::string_view nameOf(StateChange::Kind kind) { return row(kind).name; }

template <class Kind>
std::optional<Kind> kindNamed(std::string_view name) {
  return common::kindIn<Kind>(rows<Kind>(), name);
}

template <class Kind>
size_t kindCount() {
  return std::size(rows<Kind>());
}

#define GP_INSTANTIATE(Kind)                                           \
  template std::optional<Kind> kindNamed<Kind>(std::string_view name); \
  template size_t kindCount<Kind>();
GP_INSTANTIATE(StepKind)
GP_INSTANTIATE(PredicateKind)
GP_INSTANTIATE(RecipeKind)
GP_INSTANTIATE(EventKind)
GP_INSTANTIATE(EffectKind)
GP_INSTANTIATE(ValueKind)
GP_INSTANTIATE(StateChange::Kind)
#undef GP_INSTANTIATE

}  // namespace glowplug::ir
