#pragma once

#include <memory>
#include <mutex>
#include <utility>

namespace glowplug::common {

// A shared pointer that threads read and replace. std::atomic<std::shared_ptr> is one too, but that
// of GCC 12 gives its lock back without ordering, which is a data race.
template <class T>
class SharedSlot {
 public:
  std::shared_ptr<T> load() const {
    const std::lock_guard held(lock_);
    return value_;
  }
  // What was there is let go of by the caller, outside the lock.
  std::shared_ptr<T> exchange(std::shared_ptr<T> value) {
    const std::lock_guard held(lock_);
    value_.swap(value);
    return value;
  }
  void store(std::shared_ptr<T> value) { exchange(std::move(value)); }

 private:
  mutable std::mutex lock_;
  std::shared_ptr<T> value_;
};

}  // namespace glowplug::common
