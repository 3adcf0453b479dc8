#pragma once

// Private to aten/.
#include <atomic>
#include <functional>
#include <mutex>

#include "aten/convolution_primitive.h"
#include "aten/packed_weight.h"
#include "aten/torch.h"
#include "aten/unversioned.h"
#include "common/shared_slot.h"

namespace glowplug::aten {

// What a tensor was when it was packed or looked at.
struct WeightState {
  const c10::StorageImpl* storage = nullptr;
  const void* data = nullptr;
  uint32_t version = 0;

  explicit WeightState(const c10::TensorImpl& tensor)
      : storage(tensor.unsafe_storage().unsafeGetStorageImpl()),
        data(tensor.data()),
        version(tensor.version_counter().current_version()) {}
  bool operator==(const WeightState&) const = default;
};

struct KnownTensor::Impl {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
  const c10::TensorImpl* address;
};

// That oneDNN refused what was asked of it.
void countFailure(const char* why);

// How much of a limit is used. Any thread.
class PackedBytes : public std::enable_shared_from_this<PackedBytes> {
 public:
  explicit PackedBytes(uint64_t limit) : limit_(limit) {}

  // Given back when the share is let go of. Null, and counted, if there is not as much left.
  std::shared_ptr<const void> take(uint64_t bytes);

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

struct Packed {
  at::Tensor weight;  // oneDNN's layout; undefined where a primitive has it
  at::Tensor bias;    // undefined where it is not part of the packing
  std::shared_ptr<const ConvolutionPrimitive> primitive;  // may be null
  std::vector<WeightState> states;
  // What sources from `Impl::firstHidden` to `Impl::endHidden` contained.
  std::vector<at::Tensor> contents;
  std::shared_ptr<const void> share;  // of the limit
  // Keep the storages' addresses from being used again.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
};

struct PackedWeight::Impl {
  using Sources = c10::SmallVector<const c10::TensorImpl*, 6>;
  struct Made {
    at::Tensor weight, bias;
    std::shared_ptr<const ConvolutionPrimitive> primitive;
  };

  KnownTensors sources;
  std::shared_ptr<PackedBytes> budget;
  // Running statistics are written by batch norms in training without moving the version on, so
  // their contents are compared: they are small.
  size_t firstHidden = 0, endHidden = 0;
  // From the sources, detached.
  std::function<Made(const std::vector<at::Tensor>&)> make;
  common::SharedSlot<const Packed> packed;
  // Set when an alias without the version counter has been handed out.
  std::shared_ptr<std::atomic<HandedOut>> dirty =
      std::make_shared<std::atomic<HandedOut>>(HandedOut::Nothing);

  std::mutex lock;  // the rest
  std::optional<std::vector<WeightState>> seen;
  int repacks = 0;

  std::atomic<bool> waiting{true};   // for the first packing
  std::atomic<bool> refused{false};  // by the limit, or by oneDNN

  // What is packed while `now` are the tensors that it was made of; otherwise null. It is packed
  // when there is time for it. What has changed, and stayed the same from one call to the next, is
  // packed again, a few times at most.
  std::shared_ptr<const Packed> current(const Sources& now, PackingTime& time);
  std::shared_ptr<const Packed> first(PackingTime& time);
  std::shared_ptr<const Packed> changed(const Sources& now);
  Packing pack();
  // As pack(); what that throws, the program is not to see.
  Packing tryToPack();
  // Not again; counted.
  void refuse(const char* why);
  // The tensors alive, if their writers are noticed.
  Packing find(std::vector<at::Tensor>& tensors) const;
};

}  // namespace glowplug::aten
