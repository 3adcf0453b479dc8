#include "engine/phases.h"

#include <map>
#include <mutex>
#include <string>

namespace glowplug::engine {
namespace {

std::mutex phaseLock;
std::map<std::string, PhaseTime>& phases() {
  static std::map<std::string, PhaseTime> table;  // under the lock
  return table;
}

}  // namespace

void addPhaseTime(std::string_view phase, double seconds) {
  const std::lock_guard held(phaseLock);
  PhaseTime& entry =
      phases().try_emplace(std::string(phase), PhaseTime{std::string(phase), 0, 0}).first->second;
  entry.seconds += seconds;
  entry.count++;
}

std::vector<PhaseTime> phaseTimes() {
  const std::lock_guard held(phaseLock);
  std::vector<PhaseTime> result;
  for (const auto& [name, time] : phases()) result.push_back(time);
  return result;
}

void resetPhaseTimes() {
  const std::lock_guard held(phaseLock);
  phases().clear();
}

}  // namespace glowplug::engine
