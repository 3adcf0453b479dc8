#pragma once

// Private to engine/: what a call of an entry took.

#include <chrono>

#include "common/events.h"
#include "engine/entry.h"

namespace glowplug::engine {

inline int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The times of one call, for whoever listens. What an entry below another one takes is part of that
// one's time.
struct Entry::Timing {
  explicit Timing(const Entry& entry) : listening(entry.depth_ == 0 && common::listening()) {
    if (listening) {
      record.entry = entry.id_;
      record.start_ns = now();
    }
  }
  ~Timing() {
    if (!listening) return;
    record.total_ns = now() - record.start_ns;
    common::emit(record);
  }
  int64_t mark() const { return listening ? now() : 0; }

  bool listening;
  common::CallRecord record;
};

}  // namespace glowplug::engine
