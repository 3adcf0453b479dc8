#include <c10/core/CPUAllocator.h>

#include "aten/packed_weight_impl.h"

namespace glowplug::aten {
namespace {

// A weight that changes now and then is worth packing again, one that is being trained is not.
constexpr int kMostRepacks = 8;

using Reorder = at::Tensor(const at::Tensor&, std::optional<int64_t>);

at::Tensor reorder(const at::Tensor& weight, int64_t rows) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("mkldnn::_reorder_linear_weight", "")
                      .typed<Reorder>();
  return op.call(weight, rows);
}

}  // namespace

PackedWeight::PackedWeight(PyObject* tensor, bool transposed, int64_t rows) {
  const at::Tensor& unpacked = THPVariable_Unpack(tensor);
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  impl_ = std::make_unique<Impl>(Weak(unpacked.getIntrusivePtr()), unpacked.unsafeGetTensorImpl(),
                                 transposed, rows);
}
PackedWeight::~PackedWeight() = default;

Packing PackedWeight::pack() {
  const std::lock_guard held(impl_->lock);
  return impl_->pack();
}

// A writer moves the version on when it has written: whoever writes while this reads has changed
// it by the time of the second look, or changes it later, and then current() sees that.
Packing PackedWeight::Impl::pack() {
  const auto held = tensor.lock();
  if (!held) return Packing::Later;
  const at::Tensor weight{held};
  const bool plain = weight.device().is_cpu() && weight.layout() == at::kStrided &&
                     weight.scalar_type() == at::kFloat && weight.dim() == 2;
  if (!plain || !weight.has_storage()) return Packing::Never;
  // Inference tensors have no version counter.
  if (weight.is_inference() || !hearsOfUnversioned()) return Packing::Never;
  const c10::Storage& storage = weight.storage();
  // Memory of a numpy array or a file is written by others.
  if (storage.data_ptr().get_deleter() != c10::GetCPUAllocator()->raw_deleter()) {
    return Packing::Never;
  }
  // Who holds the memory besides the weight may have it without the counter. It may also be an
  // operator that runs just now and has made a view of it.
  if (storage.use_count() != 1) return Packing::Later;
  watchUnversioned(storage.unsafeGetStorageImpl(), dirty);
  const WeightState before(*weight.unsafeGetTensorImpl());
  const auto earlier = packed.load();
  if (earlier && earlier->state == before && dirty->load() == HandedOut::Nothing)
    return Packing::Done;
  const c10::InferenceMode plainTensors(false);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor detached = weight.detach();
  at::Tensor made = reorder((transposed ? detached.t() : detached).contiguous(), rows);
  if (WeightState(*weight.unsafeGetTensorImpl()) != before) return Packing::Later;
  if (dirty->load() != HandedOut::Nothing) return Packing::Later;
  packed.store(std::make_shared<const Packed>(std::move(made), before,
                                              weight.storage().getWeakStorageImpl()));
  return Packing::Done;
}

at::Tensor PackedWeight::Impl::current(const c10::TensorImpl& weight) {
  const std::shared_ptr<const Packed> made = packed.load();
  if (&weight != address) return {};
  if (C10_LIKELY(made && dirty->load() == HandedOut::Nothing &&
                 made->state == WeightState(weight))) {
    return made->weight;
  }
  return changed(weight);
}

at::Tensor PackedWeight::Impl::changed(const c10::TensorImpl& weight) {
  const std::lock_guard held(lock);
  const WeightState now(weight);
  packed.store(nullptr);
  // An alias that was handed out may be alive, or may have written.
  HandedOut alias = HandedOut::Alias;
  const bool handedOut = dirty->compare_exchange_strong(alias, HandedOut::Nothing);
  const bool settled = seen && *seen == now && !handedOut;
  seen = now;
  if (!settled || repacks >= kMostRepacks) return {};
  if (pack() != Packing::Done) return {};
  ++repacks;
  const auto made = packed.load();
  return made ? made->weight : at::Tensor();
}

}  // namespace glowplug::aten
