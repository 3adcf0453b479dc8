#include "insight/counters.h"

namespace glowplug::insight {
namespace {

constexpr const char* kStatNames[] = {
#define STAT(name, meaning) #name,
#include "insight/stats.def"
#undef STAT
};

}  // namespace

void Counters::addBreak(common::Reason reason) {
  const std::lock_guard held(lock_);
  ++breaks_[common::info(reason).id];
}

void Counters::addRecompile(std::string_view guard) {
  const std::lock_guard held(lock_);
  ++recompiles_[std::string(guard)];
}

void Counters::addRefusal(common::Reason reason) {
  const std::lock_guard held(lock_);
  ++refusals_[common::info(reason).id];
}

void Counters::addNative(common::Reason reason) {
  const std::lock_guard held(lock_);
  ++native_[common::info(reason).id];
}

Counters::Snapshot Counters::snapshot() const {
  Snapshot out;
  for (size_t i = 0; i < kStatCount; ++i) {
    out.stats[kStatNames[i]] = stats_[i].load(std::memory_order_relaxed);
  }
  const std::lock_guard held(lock_);
  out.graphBreak = breaks_;
  out.recompiles = recompiles_;
  out.refusals = refusals_;
  out.native = native_;
  return out;
}

void Counters::reset() {
  for (std::atomic<uint64_t>& stat : stats_) stat.store(0, std::memory_order_relaxed);
  const std::lock_guard held(lock_);
  breaks_.clear();
  recompiles_.clear();
  refusals_.clear();
  native_.clear();
}

Counters& counters() {
  // Never destroyed: threads may count while the process ends.
  static Counters& instance = *new Counters;
  return instance;
}

}  // namespace glowplug::insight
