#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace glowplug::common {

// The options of one entry, with their defaults: options.def.
struct Options {
#define OPTION(member, name, type, value, least, most, doc) type member = value;
#include "common/options.def"
#undef OPTION

  bool operator==(const Options&) const = default;

  // Sets one option from text: a whole number, or true/false (also True, on, 1...) for a switch.
  // Returns what is wrong, naming the option ("unknown option 'x'; known options: ..."), or an
  // empty string; then nothing is changed.
  std::string set(std::string_view name, std::string_view value);
  // Several, all or none.
  std::string set(const std::vector<std::pair<std::string, std::string>>& pairs);

  // The defaults with the environment's GLOWPLUG_MAX_TRACES and so on. A value that does not fit
  // leaves the default and is told in `complaints`.
  static Options fromEnvironment(std::vector<std::string>& complaints);
};

struct OptionInfo {
  const char* name;
  const char* type;  // "int" or "bool"
  int64_t value;     // default
  int64_t least, most;
  const char* doc;
};
const std::vector<OptionInfo>& optionTable();

// Values as texts: "1", "true", "True", "on" and their opposites; a whole number. Nothing for
// anything else.
std::optional<bool> readSwitch(std::string_view text);
std::optional<int64_t> readNumber(std::string_view text);

}  // namespace glowplug::common
