#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace glowplug::engine {

// Seconds and counts by phase since the last reset: capture, build, lower, codegen... From any
// thread.
struct PhaseTime {
  std::string phase;
  double seconds;
  uint64_t count;
};
std::vector<PhaseTime> phaseTimes();
void addPhaseTime(std::string_view phase, double seconds);
void resetPhaseTimes();

// Adds the time of its life.
class Phase {
 public:
  explicit Phase(const char* name) : name_(name) {}
  ~Phase() { addPhaseTime(name_, std::chrono::duration<double>(Clock::now() - start_).count()); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  const char* name_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace glowplug::engine
