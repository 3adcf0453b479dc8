#pragma once

#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "common/check.h"

// Tables with a row for each enumerator, in their order, and a name in each.
namespace glowplug::common {

template <class Table, class Kind>
const auto& rowOf(const Table& table, Kind kind) {
  const auto index = static_cast<size_t>(kind);
  GP_CHECK(index < std::size(table), "row " + std::to_string(index));
  return table[index];
}

template <class Kind, class Table>
std::optional<Kind> kindIn(const Table& table, std::string_view name) {
  for (size_t i = 0; i < std::size(table); ++i) {
    if (table[i].name == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

}  // namespace glowplug::common
