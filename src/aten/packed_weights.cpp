// The packed weights of an entry: which are one and the same, and how much memory they take.

#include <algorithm>
#include <cstring>
#include <string_view>

#include "aten/packed_weight_impl.h"
#include "common/log.h"

namespace glowplug::aten {
namespace {

std::atomic<uint64_t> bytesOfAll{0}, refusals{0}, failures{0};

template <class Packing>
struct Known {
  std::vector<const c10::TensorImpl*> addresses;
  Packing how;
  std::weak_ptr<PackedWeight> packed;
};

// Addresses tell tensors apart while a packed weight lives, since it holds them weakly.
template <class Packing>
std::shared_ptr<PackedWeight> find(std::vector<Known<Packing>>& known, const KnownTensors& sources,
                                   const Packing& how, const std::shared_ptr<PackedBytes>& budget) {
  std::vector<const c10::TensorImpl*> addresses;
  for (const auto& source : sources) addresses.push_back(source->impl().address);
  std::erase_if(known, [](const Known<Packing>& each) { return each.packed.expired(); });
  for (const Known<Packing>& each : known) {
    if (each.addresses != addresses || !(each.how == how)) continue;
    if (auto packed = each.packed.lock()) return packed;
  }
  auto made = std::make_shared<PackedWeight>(sources, how, budget);
  known.push_back({std::move(addresses), how, made});
  return made;
}

}  // namespace

std::shared_ptr<const void> PackedBytes::take(uint64_t bytes) {
  uint64_t used = used_.load();
  do {
    if (bytes > limit_ || used > limit_ - bytes) {
      refusals.fetch_add(1);
      return nullptr;
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  bytesOfAll.fetch_add(bytes);
  return {this, [self = shared_from_this(), bytes](const void*) {
            self->used_.fetch_sub(bytes);
            bytesOfAll.fetch_sub(bytes);
          }};
}

void countFailure(const char* why) {
  failures.fetch_add(1);
  const std::string_view line(why, std::strcspn(why, "\n"));  // torch's go on with frames
  common::log(common::Channel::Native, "a packed weight: {}", line);
}

PackedCounts packedCounts() { return {bytesOfAll.load(), refusals.load(), failures.load()}; }
void resetPackedCounts() {
  refusals.store(0);
  failures.store(0);
}

struct PackedWeights::Impl {
  std::shared_ptr<PackedBytes> budget;
  std::mutex lock;  // of the rest
  std::vector<Known<LinearPacking>> linears;
  std::vector<Known<ConvolutionPacking>> convolutions;
};

PackedWeights::PackedWeights(uint64_t limit) : impl_(std::make_unique<Impl>()) {
  impl_->budget = std::make_shared<PackedBytes>(limit);
}
PackedWeights::~PackedWeights() = default;

std::shared_ptr<PackedWeight> PackedWeights::get(const KnownTensors& sources,
                                                 const LinearPacking& how) {
  const std::lock_guard held(impl_->lock);
  return find(impl_->linears, sources, how, impl_->budget);
}

std::shared_ptr<PackedWeight> PackedWeights::get(const KnownTensors& sources,
                                                 const ConvolutionPacking& how) {
  const std::lock_guard held(impl_->lock);
  return find(impl_->convolutions, sources, how, impl_->budget);
}

}  // namespace glowplug::aten
