#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "common/reasons.h"

namespace glowplug::insight {

enum class Stat : uint8_t {
#define STAT(name, meaning) name,
#include "insight/stats.def"
#undef STAT
};
inline constexpr size_t kStatCount = 0
#define STAT(name, meaning) +1
#include "insight/stats.def"
#undef STAT
    ;

using Tally = std::map<std::string, uint64_t>;

// How often each thing happened. Any thread may count and read at any time.
class Counters {
 public:
  struct Snapshot {
    Tally stats;       // every Stat, also those at 0
    Tally graphBreak;  // by reason id
    Tally recompiles;  // by the text of the guard that did not hold
    Tally refusals;    // by reason id
    Tally native;      // operators that stay in tier 1, and failures, by reason id
  };

  void add(Stat stat, uint64_t amount = 1) {
    stats_[static_cast<size_t>(stat)].fetch_add(amount, std::memory_order_relaxed);
  }
  void addBreak(common::Reason reason);
  void addRecompile(std::string_view guard);
  void addRefusal(common::Reason reason);
  void addNative(common::Reason reason);

  Snapshot snapshot() const;
  void reset();

 private:
  std::array<std::atomic<uint64_t>, kStatCount> stats_{};
  mutable std::mutex lock_;  // of the tallies below
  Tally breaks_;
  Tally recompiles_;
  Tally refusals_;
  Tally native_;
};

// Those of the process.
Counters& counters();

}  // namespace glowplug::insight
