#pragma once

#include <cstdint>
#include <functional>
#include <limits>

namespace glowplug::common {

// A typed index into one table of one trace. Ids of different tables cannot be mixed up; a
// default-made id refers to nothing.
template <class Tag>
struct Id {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  uint32_t value = kNone;

  constexpr Id() = default;
  constexpr explicit Id(size_t index) : value(static_cast<uint32_t>(index)) {}

  constexpr bool valid() const { return value != kNone; }
  constexpr size_t index() const { return value; }
  friend constexpr bool operator==(Id a, Id b) { return a.value == b.value; }
  friend constexpr bool operator!=(Id a, Id b) { return a.value != b.value; }
  friend constexpr bool operator<(Id a, Id b) { return a.value < b.value; }
};

// The tables of a trace.
using SourceId = Id<struct SourceTag>;
using ValueId = Id<struct ValueTag>;
using RecipeId = Id<struct RecipeTag>;
using SiteId = Id<struct SiteTag>;
using ObjectId = Id<struct ObjectTag>;      // Python object, in cpython::ObjectTable
using IValueId = Id<struct IValueTag>;      // constant operand of an operator, in aten::OpTable
using MetaId = Id<struct MetaTag>;          // tensor metadata, in aten::OpTable
using OperatorId = Id<struct OperatorTag>;  // operator, in aten::OpTable

}  // namespace glowplug::common

template <class Tag>
struct std::hash<glowplug::common::Id<Tag>> {
  size_t operator()(glowplug::common::Id<Tag> id) const noexcept { return id.value; }
};
