#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

// The stream of what happened to each call of each entry, for profilers and reports. Nobody listens
// as a rule; then a call pays one load.
namespace glowplug::common {

struct CallRecord {
  enum class Kind : uint8_t {
    Recorded,  // a new trace was made while the program ran
    Replayed,  // a plan ran to its end
    Bypassed,  // the original ran because of what is active around the call (reason)
    Eager,     // the original ran because this entry, or this call, cannot be compiled (reason)
    Exited,    // a plan ran up to a point where no trace goes on, and the original or a recording
               // took over
  };

  uint64_t entry = 0;  // number of the entry
  Kind kind = Kind::Replayed;
  uint32_t trace = 0;    // number of the trace in its entry, of Recorded, Replayed, Exited
  int64_t start_ns = 0;  // on the steady clock
  int64_t guard_ns = 0;  // until the trace that holds is found, torch's state included
  // Recording and compiling that the caller waited for, beyond running the program.
  int64_t record_ns = 0;
  int64_t execute_ns = 0;        // running the program or its plan
  int64_t total_ns = 0;          // from the entry's call to its return
  uint64_t thread = 0;           // number of the calling thread; emit sets it
  const char* reason = nullptr;  // a reason's id (common/reasons.h), which lives for ever
};

const char* nameOf(CallRecord::Kind kind);  // "recorded"

namespace detail {
extern constinit std::atomic<uint32_t> listeners;
}

inline bool listening() { return detail::listeners.load(std::memory_order_relaxed) != 0; }

// Listeners are counted: the stream is on while there is one. When the last goes, what was not
// taken is dropped.
void startListening();
void stopListening();

// Adds a record if anybody listens. Any thread.
void emit(const CallRecord& record);

// What was emitted since the last take, in the order of emission.
std::vector<CallRecord> take();

}  // namespace glowplug::common
