#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "ir/tables.h"
#include "ir/trace.h"

// The members of the trace's structs by their names in text. Printer, parser and verifier walk
// these tuples, so a new member needs one row here. Printed apart: kinds, and an event's results
// and resultLengths.
namespace glowplug::ir {

template <class Struct, class Member>
struct Field {
  std::string_view name;
  Member Struct::* member;
};

template <class Struct>
struct Fields;

template <>
struct Fields<Source> {
  static constexpr auto kAll = std::tuple{
      Field{"parent", &Source::parent},
      Field{"object", &Source::object},
      Field{"index", &Source::index},
      Field{"since", &Source::since},
  };
};

template <>
struct Fields<Guard> {
  static constexpr auto kAll = std::tuple{
      Field{"source", &Guard::source}, Field{"object", &Guard::object},
      Field{"other", &Guard::other},   Field{"meta", &Guard::meta},
      Field{"number", &Guard::number}, Field{"since", &Guard::since},
      Field{"site", &Guard::site},
  };
};

template <>
struct Fields<Recipe> {
  static constexpr auto kAll = std::tuple{
      Field{"object", &Recipe::object},
      Field{"source", &Recipe::source},
      Field{"value", &Recipe::value},
      Field{"children", &Recipe::children},
  };
};

template <>
struct Fields<Event> {
  static constexpr auto kAll = std::tuple{
      Field{"op", &Event::op},
      Field{"operands", &Event::operands},
      Field{"writes_input", &Event::writesInput},
      Field{"random", &Event::random},
      Field{"state", &Event::state},
      Field{"effect", &Event::effect},
      Field{"recipes", &Event::recipes},
      Field{"keywords", &Event::keywords},
      Field{"log_only", &Event::logOnly},
      Field{"known", &Event::known},
      Field{"pure", &Event::pure},
      Field{"keeps", &Event::keeps},
      Field{"value", &Event::value},
      Field{"expected", &Event::expected},
      Field{"sizes", &Event::sizes},
      Field{"dead", &Event::dead},
      Field{"site", &Event::site},
  };
};

// Calls visit(field) for each member.
template <class Struct, class Visit>
void forEachField(Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Fields<Struct>::kAll);
}

// The member's name where the payload of a kind is kept; empty for None.
inline std::string_view payloadField(Payload payload) {
  switch (payload) {
    case Payload::None:
      return "";
    case Payload::Index:
      return "index";
    case Payload::Key:
    case Payload::Object:
      return "object";
    case Payload::Other:
      return "other";
    case Payload::Number:
      return "number";
    case Payload::Meta:
      return "meta";
    case Payload::Source:
      return "source";
    case Payload::Value:
      return "value";
  }
  return "";
}

// The members that are printed without their names, in order, and that the kind needs.
using Positional = std::array<std::string_view, 2>;
inline Positional positional(const Source& source) {
  return {info(source.step).root ? "" : "parent", payloadField(info(source.step).payload)};
}
inline Positional positional(const Guard& guard) {
  return {"source", payloadField(info(guard.kind).payload)};
}
inline Positional positional(const Recipe& recipe) {
  return {payloadField(info(recipe.kind).payload), "children"};
}
inline Positional positional(const Event& event) {
  const std::string_view words = info(event.kind).positional;
  const size_t space = words.find(' ');
  if (space == std::string_view::npos) return {words, ""};
  return {words.substr(0, space), words.substr(space + 1)};
}

// What an Op whose lengths are not printed has: only single returns.
inline std::vector<int32_t> impliedLengths(const Event& event) {
  if (event.kind != EventKind::Op) return {};
  return std::vector<int32_t>(event.results.size(), -1);
}

}  // namespace glowplug::ir
