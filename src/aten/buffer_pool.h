#pragma once

#include <cstddef>
#include <cstdint>

// Memory of tensors that replays make, kept for the replays that come after.
//
// malloc returns large blocks to the system and asks for them again, and each page of fresh memory
// is a fault: 1.6 us on a virtual machine, as long as eight lines of arithmetic over it. A block of
// the pool belongs to a tensor's storage like any other memory, and comes back when that is freed,
// on whatever thread. So nothing in use is ever handed out again, whatever escapes from a call, and
// calls may overlap or nest. It serves what operators allocate by themselves too: torch is given an
// allocator that looks at a variable of the thread and, outside of a Scope, passes on to its own.
namespace glowplug::aten {

// While it lives, large tensors that this thread makes have memory of the pool. Scopes nest.
class PoolScope {
 public:
  explicit PoolScope(bool on);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  const bool on_;
};

// While it lives, this thread is in no scope: for what stays beyond the call.
class PoolPause {
 public:
  PoolPause();
  ~PoolPause();
  PoolPause(const PoolPause&) = delete;
  PoolPause& operator=(const PoolPause&) = delete;

 private:
  const int depth_;
};

struct PoolCounts {
  uint64_t reused = 0, fresh = 0;         // blocks handed out
  uint64_t bytesIdle = 0, bytesUsed = 0;  // now
};

// Any thread.
PoolCounts poolCounts();
// Forgets what has been counted, and gives back all idle memory.
void emptyPool();

// Whether memory with this deleter is torch's or the pool's own, and nobody else's: an array's, a
// file's, another process's.
bool isOwnMemory(void (*deleter)(void*));

}  // namespace glowplug::aten
