#include "common/events.h"

#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "common/check.h"

namespace glowplug::common {
namespace {

struct Buffer {
  std::mutex lock;
  std::vector<CallRecord> records;
};

// Never destroyed: threads may emit while the process ends.
Buffer& buffer() {
  static Buffer& instance = *new Buffer;
  return instance;
}

// Threads numbered in the order in which they first emit.
uint64_t threadNumber() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

namespace detail {
constinit std::atomic<uint32_t> listeners{0};
}

const char* nameOf(CallRecord::Kind kind) {
  static constexpr const char* kNames[] = {"recorded", "replayed", "bypassed", "eager", "exited"};
  const auto index = static_cast<size_t>(kind);
  GP_CHECK(index < std::size(kNames), std::to_string(index));
  return kNames[index];
}

void startListening() {
  const std::lock_guard held(buffer().lock);
  detail::listeners.fetch_add(1, std::memory_order_relaxed);
}

void stopListening() {
  const std::lock_guard held(buffer().lock);
  GP_CHECK(listening(), "nobody listens");
  if (detail::listeners.fetch_sub(1, std::memory_order_relaxed) == 1) buffer().records = {};
}

void emit(const CallRecord& record) {
  if (!listening()) return;
  const std::lock_guard held(buffer().lock);
  // The last listener may have gone meanwhile.
  if (!listening()) return;
  buffer().records.push_back(record);
  buffer().records.back().thread = threadNumber();
}

std::vector<CallRecord> take() {
  const std::lock_guard held(buffer().lock);
  return std::exchange(buffer().records, {});
}

}  // namespace glowplug::common
