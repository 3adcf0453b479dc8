#include "cache/settings.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "common/options.h"

namespace glowplug::cache {
namespace {

// Empty where it is not set, or set to nothing.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string homeDirectory() {
  if (std::string home = variable("HOME"); !home.empty()) return home;
  passwd entry{}, *found = nullptr;
  char buffer[4096];
  if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_dir;
}

std::string chosenDirectory() {
  if (std::string own = variable("GLOWPLUG_CACHE_DIR"); !own.empty()) {
    std::error_code problem;
    return std::filesystem::absolute(own, problem).lexically_normal().string();
  }
  // The specification has relative paths ignored.
  const std::string caches = variable("XDG_CACHE_HOME");
  if (caches.starts_with('/')) return caches + "/glowplug";
  const std::string home = homeDirectory();
  return home.starts_with('/') ? home + "/.cache/glowplug" : "";
}

}  // namespace

Settings Settings::fromEnvironment(std::vector<std::string>& complaints) {
  Settings out;
  if (const std::string wanted = variable("GLOWPLUG_CACHE"); !wanted.empty()) {
    const auto on = common::readSwitch(wanted);
    out.on = on.value_or(true);
    if (!on) complaints.push_back(fmt::format("GLOWPLUG_CACHE: '{}' is not 0 or 1", wanted));
  }
  if (const std::string wanted = variable("GLOWPLUG_CACHE_SIZE"); !wanted.empty()) {
    const auto megabytes = common::readNumber(wanted);
    const bool fits = megabytes && *megabytes >= 0 && *megabytes <= 1 << 30;
    if (fits) out.bytes = static_cast<uint64_t>(*megabytes) << 20;
    if (!fits) {
      complaints.push_back(
          fmt::format("GLOWPLUG_CACHE_SIZE: '{}' is not a number of megabytes", wanted));
    }
  }
  out.directory = chosenDirectory();
  return out;
}

}  // namespace glowplug::cache
