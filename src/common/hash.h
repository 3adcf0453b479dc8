#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace glowplug::common {

// 128 bits that tell texts apart (XXH3): the same in every process and on every machine. Collisions
// do not happen by chance but can be made on purpose, so whoever must not take one text for another
// compares the texts as well.
struct Hash {
  uint64_t high = 0, low = 0;

  bool operator==(const Hash&) const = default;
  std::string hex() const;  // 32 digits
};

Hash hashOf(std::string_view text);

}  // namespace glowplug::common
