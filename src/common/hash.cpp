#include "common/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace glowplug::common {

std::string Hash::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash hashOf(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.high64, hash.low64};
}

}  // namespace glowplug::common
