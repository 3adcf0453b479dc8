#include "common/options.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdlib>

namespace glowplug::common {
namespace {

template <class Type>
constexpr const char* kTypeName = "int";
template <>
constexpr const char* kTypeName<bool> = "bool";

std::string unknownOption(std::string_view name) {
  std::vector<std::string_view> names;
  for (const OptionInfo& option : optionTable()) names.push_back(option.name);
  return fmt::format("unknown option '{}'; known options: {}", name, fmt::join(names, ", "));
}

template <class Type>
std::string assign(Type& member, const OptionInfo& option, std::string_view text) {
  constexpr bool isSwitch = std::is_same_v<Type, bool>;
  const std::optional<int64_t> value =
      isSwitch ? std::optional<int64_t>(readSwitch(text)) : readNumber(text);
  if (!value || *value < option.least || *value > option.most) {
    const std::string wanted =
        isSwitch ? "true or false"
                 : fmt::format("a whole number from {} to {}", option.least, option.most);
    return fmt::format("option '{}' must be {}, not '{}'", option.name, wanted, text);
  }
  member = static_cast<Type>(*value);
  return "";
}

}  // namespace

std::optional<bool> readSwitch(std::string_view text) {
  for (const std::string_view word : {"true", "True", "on", "1"}) {
    if (text == word) return true;
  }
  for (const std::string_view word : {"false", "False", "off", "0"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> readNumber(std::string_view text) {
  int64_t out = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (problem != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return out;
}

const std::vector<OptionInfo>& optionTable() {
  static const std::vector<OptionInfo> kTable = {
#define OPTION(member, name, type, value, least, most, doc) \
  {name, kTypeName<type>, value, least, most, doc},
#include "common/options.def"
#undef OPTION
  };
  return kTable;
}

std::string Options::set(std::string_view wanted, std::string_view text) {
  const OptionInfo* row = optionTable().data();
#define OPTION(member, name, type, value, least, most, doc) \
  if (wanted == name) return assign(member, *row, text);    \
  ++row;
#include "common/options.def"
#undef OPTION
  return unknownOption(wanted);
}

std::string Options::set(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Options changed = *this;
  for (const auto& [name, value] : pairs) {
    if (std::string complaint = changed.set(name, value); !complaint.empty()) return complaint;
  }
  *this = changed;
  return "";
}

Options Options::fromEnvironment(std::vector<std::string>& complaints) {
  Options out;
  for (const OptionInfo& option : optionTable()) {
    std::string variable = std::string("GLOWPLUG_") + option.name;
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) continue;
    if (const std::string complaint = out.set(option.name, value); !complaint.empty()) {
      complaints.push_back(variable + ": " + complaint);
    }
  }
  return out;
}

}  // namespace glowplug::common
