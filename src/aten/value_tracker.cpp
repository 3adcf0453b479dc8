#include "aten/value_tracker.h"

namespace glowplug::aten {

namespace {

c10::StorageImpl* storageOf(const c10::TensorImpl& impl) {
  return impl.has_storage() ? impl.unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

WeakStorage weakStorage(const c10::TensorImpl& impl) {
  return storageOf(impl) == nullptr ? WeakStorage(c10::intrusive_ptr<c10::StorageImpl>())
                                    : impl.unsafe_storage().getWeakStorageImpl();
}

bool explicitGrad(const c10::TensorImpl& impl) {
  auto* meta = static_cast<torch::autograd::AutogradMeta*>(impl.autograd_meta());
  return meta != nullptr && meta->requires_grad_;
}

bool hasHistory(const c10::TensorImpl& impl) {
  auto* meta = static_cast<torch::autograd::AutogradMeta*>(impl.autograd_meta());
  return meta != nullptr && meta->grad_fn_ != nullptr;
}

void refreshFrom(ValueTracker::Entry& entry, const c10::TensorImpl& impl) {
  entry.hasHistory = hasHistory(impl);
  entry.explicitGrad = explicitGrad(impl);
  if (entry.storage._unsafe_get_target() != storageOf(impl)) entry.storage = weakStorage(impl);
}

}  // namespace

bool explicitGrad(const at::Tensor& tensor) { return explicitGrad(*tensor.unsafeGetTensorImpl()); }

ValueTracker::Entry* ValueTracker::find(const at::Tensor& tensor) {
  auto found = entries_.find(tensor.unsafeGetTensorImpl());
  return found == entries_.end() ? nullptr : &found->second;
}

const ValueTracker::Entry* ValueTracker::find(const at::Tensor& tensor) const {
  auto found = entries_.find(tensor.unsafeGetTensorImpl());
  return found == entries_.end() ? nullptr : &found->second;
}

void ValueTracker::add(const at::Tensor& tensor, common::ValueId value, bool external) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  Entry entry{WeakTensor(tensor.getIntrusivePtr()),
              weakStorage(impl),
              value,
              explicitGrad(impl),
              hasHistory(impl),
              external};
  entries_.insert_or_assign(tensor.unsafeGetTensorImpl(), std::move(entry));
  byValue_[value] = tensor.unsafeGetTensorImpl();
  living_.push_back(value);
  if (external) markExternal(tensor);
}

at::Tensor ValueTracker::tensor(common::ValueId value) const {
  auto found = byValue_.find(value);
  if (found == byValue_.end()) return {};
  auto locked = entries_.at(found->second).tensor.lock();
  return locked ? at::Tensor(std::move(locked)) : at::Tensor();
}

std::vector<at::Tensor> ValueTracker::living() const {
  std::vector<at::Tensor> found;
  for (common::ValueId value : living_)
    if (at::Tensor alive = tensor(value); alive.defined()) found.push_back(std::move(alive));
  return found;
}

std::vector<common::ValueId> ValueTracker::takeDead() {
  std::vector<common::ValueId> dead;
  std::erase_if(living_, [&](common::ValueId value) {
    bool gone = entries_.at(byValue_.at(value)).tensor.expired();
    if (gone) dead.push_back(value);
    return gone;
  });
  return dead;
}

void ValueTracker::markExternal(const at::Tensor& tensor) {
  markExternal(*tensor.unsafeGetTensorImpl());
}

void ValueTracker::markExternal(const c10::TensorImpl& impl) {
  if (c10::StorageImpl* storage = storageOf(impl)) {
    externalStorages_.try_emplace(storage, weakStorage(impl));
  } else {
    externalWithoutStorage_ = true;
  }
}

void ValueTracker::refresh(common::ValueId value, bool external) {
  auto found = byValue_.find(value);
  // A tensor that has died meanwhile still has its TensorImpl, emptied: the weak reference keeps
  // it.
  if (found == byValue_.end()) return;
  refreshFrom(entries_.at(found->second), *found->second);
  if (external && storageOf(*found->second) != nullptr) markExternal(*found->second);
}

bool ValueTracker::historyAppeared(const Entry& entry, const at::Tensor& tensor) {
  return !entry.hasHistory && hasHistory(*tensor.unsafeGetTensorImpl()) && !tensor.is_view();
}

bool ValueTracker::storageChanged(const Entry& entry, const at::Tensor& tensor) {
  return entry.storage._unsafe_get_target() != storageOf(*tensor.unsafeGetTensorImpl());
}

bool ValueTracker::isExternal(const at::Tensor& tensor) const {
  c10::StorageImpl* storage = storageOf(*tensor.unsafeGetTensorImpl());
  if (storage == nullptr || externalWithoutStorage_) return true;
  return externalStorages_.count(storage) > 0;
}

}  // namespace glowplug::aten
