#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace glowplug::cache {

struct Settings {
  bool on = true;
  std::string directory;          // an absolute path; empty: there is no place for one
  uint64_t bytes = 512ULL << 20;  // more than that is thrown away, what was not used longest first

  // GLOWPLUG_CACHE=0 switches it off. GLOWPLUG_CACHE_DIR, or $XDG_CACHE_HOME/glowplug, or
  // ~/.cache/glowplug. GLOWPLUG_CACHE_SIZE in megabytes. A value that does not fit leaves the
  // default and is told in `complaints`.
  static Settings fromEnvironment(std::vector<std::string>& complaints);
};

}  // namespace glowplug::cache
