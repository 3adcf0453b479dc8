#include "aten/buffer_pool.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace glowplug::aten {
namespace {

// malloc keeps smaller blocks at hand by itself.
constexpr size_t kLeast = size_t{32} << 10;
// More than that goes back to the system as soon as it is freed.
constexpr size_t kMostIdle = size_t{512} << 20;
// What was of no use for so many outermost scopes goes back as well; looked at now and then.
constexpr uint64_t kIdleScopes = 256;
constexpr uint64_t kScopesBetween = 64;

// Four sizes for each power of two, so that what is nearly equal shares blocks.
size_t rounded(size_t bytes) {
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 4, 1);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  // Null where memory is short.
  void* take(size_t wanted);
  void giveBack(void* data);
  bool owns(void* data);
  void empty();
  PoolCounts counts();
  void noteScope();

  // Around a fork.
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

 private:
  struct Idle {
    void* data;
    uint64_t since;  // scope
  };
  // Removes what has been idle for longer than `scopes`.
  std::vector<void*> removeIdle(uint64_t scopes);

  std::mutex lock_;
  std::unordered_map<void*, size_t> sizes_;   // of all blocks
  std::map<size_t, std::vector<Idle>> idle_;  // by size; the last is the latest, likely in cache
  uint64_t scopes_ = 0;
  PoolCounts counts_;
};

void* Pool::take(size_t wanted) {
  const size_t bytes = rounded(wanted);
  {
    const std::lock_guard held(lock_);
    for (auto i = idle_.lower_bound(bytes); i != idle_.end() && i->first < 2 * bytes; ++i) {
      if (i->second.empty()) continue;
      void* data = i->second.back().data;
      i->second.pop_back();
      ++counts_.reused;
      counts_.bytesIdle -= i->first;
      counts_.bytesUsed += i->first;
      return data;
    }
  }
  void* data = nullptr;
  try {
    data = c10::alloc_cpu(bytes);
  } catch (const c10::Error&) {
    // Torch's own allocator says so, if there is no memory either without what is idle here.
    empty();
    return nullptr;
  }
  const std::lock_guard held(lock_);
  sizes_.emplace(data, bytes);
  ++counts_.fresh;
  counts_.bytesUsed += bytes;
  return data;
}

void Pool::giveBack(void* data) {
  {
    const std::lock_guard held(lock_);
    const auto found = sizes_.find(data);
    const size_t bytes = found->second;
    counts_.bytesUsed -= bytes;
    if (counts_.bytesIdle + bytes <= kMostIdle) {
      idle_[bytes].push_back({data, scopes_});
      counts_.bytesIdle += bytes;
      return;
    }
    sizes_.erase(found);
  }
  c10::free_cpu(data);
}

bool Pool::owns(void* data) {
  const std::lock_guard held(lock_);
  return sizes_.count(data) > 0;
}

std::vector<void*> Pool::removeIdle(uint64_t scopes) {
  std::vector<void*> out;
  for (auto& [bytes, blocks] : idle_) {
    std::erase_if(blocks, [&](const Idle& block) {
      if (scopes_ - block.since < scopes) return false;
      out.push_back(block.data);
      sizes_.erase(block.data);
      counts_.bytesIdle -= bytes;
      return true;
    });
  }
  return out;
}

void Pool::empty() {
  std::vector<void*> freed;
  {
    const std::lock_guard held(lock_);
    freed = removeIdle(0);
    counts_.reused = counts_.fresh = 0;
  }
  for (void* data : freed) c10::free_cpu(data);
}

void Pool::noteScope() {
  std::vector<void*> freed;
  {
    const std::lock_guard held(lock_);
    if (++scopes_ % kScopesBetween != 0) return;
    freed = removeIdle(kIdleScopes);
  }
  for (void* data : freed) c10::free_cpu(data);
}

PoolCounts Pool::counts() {
  const std::lock_guard held(lock_);
  return counts_;
}

// Never destroyed: tensors may outlive everything.
Pool& pool() {
  static Pool& made = *[] {
    auto* out = new Pool;
    pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });
    return out;
  }();
  return made;
}

thread_local int scopeDepth = 0;

void freePooled(void* data) {
  c10::profiledCPUMemoryReporter().Delete(data);
  pool().giveBack(data);
}

class PoolAllocator final : public c10::Allocator {
 public:
  explicit PoolAllocator(c10::Allocator& base) : base_(base) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (C10_LIKELY(scopeDepth == 0 || bytes < kLeast)) return base_.allocate(bytes);
    void* data = pool().take(bytes);
    if (data == nullptr) return base_.allocate(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &freePooled, c10::Device(c10::DeviceType::CPU)};
  }

  // For raw_deallocate(), which oneDNN's scratch memory goes through. Tensors' memory has the
  // deleter of where it comes from, so that nobody who holds one has to look it up.
  c10::DeleterFnPtr raw_deleter() const override { return &freeEither; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void freeEither(void* data);

  c10::Allocator& base_;
};

struct Installed {
  c10::Allocator* base;
  // Null: torch's allocator is one that cannot be passed on to.
  PoolAllocator* own = nullptr;

  Installed() : base(c10::GetCPUAllocator()) {
    if (base->raw_deleter() == nullptr) return;
    auto made = std::make_unique<PoolAllocator>(*base);
    c10::SetCPUAllocator(made.get(), 0);
    // It is never taken away again.
    if (c10::GetCPUAllocator() == made.get()) own = made.release();
  }
};

// At the first scope. Threads that allocate at this moment see one of the two, which may free what
// the other has made.
const Installed& installed() {
  static const Installed made;
  return made;
}

void PoolAllocator::freeEither(void* data) {
  if (pool().owns(data)) return freePooled(data);
  installed().base->raw_deallocate(data);
}

}  // namespace

PoolScope::PoolScope(bool on) : on_(on && installed().own != nullptr) {
  if (!on_) return;
  if (scopeDepth++ == 0) pool().noteScope();
}
PoolScope::~PoolScope() {
  if (on_) --scopeDepth;
}

PoolPause::PoolPause() : depth_(std::exchange(scopeDepth, 0)) {}
PoolPause::~PoolPause() { scopeDepth = depth_; }

PoolCounts poolCounts() { return pool().counts(); }
void emptyPool() { pool().empty(); }

bool isOwnMemory(void (*deleter)(void*)) {
  return deleter == c10::GetDefaultCPUAllocator()->raw_deleter() || deleter == &freePooled ||
         deleter == c10::GetCPUAllocator()->raw_deleter();
}

}  // namespace glowplug::aten
