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

std::string PackedWeight::pack() {
  const std::lock_guard held(impl_->lock);
  return impl_->pack();
}

int64_t PackedWeight::bytes() const {
  const auto packed = impl_->packed.load();
  return packed ? packed->weight.numel() * static_cast<int64_t>(sizeof(float)) : 0;
}

// A writer moves the version on when it has written: whoever writes while this reads has changed
// it by the time of the second look, or changes it later, and then current() sees that.
std::string PackedWeight::Impl::pack() {
  const auto held = tensor.lock();
  if (!held) return "the weight is gone";
  const at::Tensor weight{held};
  const bool plain = weight.device().is_cpu() && weight.layout() == at::kStrided &&
                     weight.scalar_type() == at::kFloat && weight.dim() == 2;
  if (!plain || !weight.has_storage()) return "not a plain weight";
  if (weight.is_inference()) return "an inference tensor has no version";
  if (!hearsOfUnversioned()) return "writes through .data would go unnoticed";
  const c10::Storage& storage = weight.storage();
  // Memory of a numpy array or a file is written by others.
  if (storage.data_ptr().get_deleter() != c10::GetCPUAllocator()->raw_deleter()) {
    return "the memory is not torch's own";
  }
  // Who holds the memory besides the weight may have it without the counter.
  if (storage.use_count() != 1) return "something else holds the weight's memory";
  watchUnversioned(storage.unsafeGetStorageImpl(), dirty);
  const WeightState before(*weight.unsafeGetTensorImpl());
  const c10::InferenceMode plainTensors(false);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor detached = weight.detach();
  at::Tensor made = reorder((transposed ? detached.t() : detached).contiguous(), rows);
  if (WeightState(*weight.unsafeGetTensorImpl()) != before) return "the weight is being written";
  if (dirty->load() != HandedOut::Nothing) return "the weight may be written through .data";
  packed.store(std::make_shared<const Packed>(std::move(made), before,
                                              weight.storage().getWeakStorageImpl()));
  return "";
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
  if (!pack().empty()) return {};
  ++repacks;
  const auto made = packed.load();
  return made ? made->weight : at::Tensor();
}

}  // namespace glowplug::aten
