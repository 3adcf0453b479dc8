#pragma once

// Private to aten/.
#include <atomic>
#include <mutex>

#include "aten/packed_weight.h"
#include "aten/torch.h"
#include "aten/unversioned.h"

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

struct Packed {
  at::Tensor weight;  // oneDNN's layout
  WeightState state;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps its address from being used again
};

struct PackedWeight::Impl {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
  const c10::TensorImpl* address;
  bool transposed;
  int64_t rows;
  std::atomic<std::shared_ptr<const Packed>> packed;
  // Set when an alias without the version counter has been handed out.
  std::shared_ptr<std::atomic<HandedOut>> dirty =
      std::make_shared<std::atomic<HandedOut>>(HandedOut::Nothing);

  Impl(c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor,
       const c10::TensorImpl* address, bool transposed, int64_t rows)
      : tensor(std::move(tensor)), address(address), transposed(transposed), rows(rows) {}

  std::mutex lock;  // the rest
  std::optional<WeightState> seen;
  int repacks = 0;

  // The packed copy while `weight` is what was packed. A weight that has changed, and stayed the
  // same from one call to the next, is packed again, a few times at most.
  at::Tensor current(const c10::TensorImpl& weight);
  at::Tensor changed(const c10::TensorImpl& weight);
  Packing pack();
};

}  // namespace glowplug::aten
