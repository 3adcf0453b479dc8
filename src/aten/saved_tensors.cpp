#include "aten/saved_tensors.h"

#include <cstring>

namespace glowplug::aten {

void SavedTensors::track(const at::Tensor& tensor) {
  size_t before = trail_.tensors.size();
  trail_.track(tensor);
  if (trail_.tensors.size() > before) requiresGrad_.push_back(tensor.requires_grad());
}

void SavedTensors::keepContents(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu()) return;
  const c10::Storage& storage = tensor.storage();
  auto [at, isNew] = contents_.try_emplace(storage.unsafeGetStorageImpl());
  if (!isNew) return;
  const auto* data = static_cast<const char*>(storage.data());
  at->second = {storage, std::vector<char>(data, data + (data ? storage.nbytes() : 0))};
}

void SavedTensors::keepGradients() {
  for (const at::Tensor& tensor : trail_.tensors)
    keepContents(tensor.unsafeGetTensorImpl()->grad());
}

void SavedTensors::restore() {
  trail_.rewind();
  for (size_t i = 0; i < trail_.tensors.size(); i++) {
    const at::Tensor& tensor = trail_.tensors[i];
    if (tensor.is_leaf() && tensor.requires_grad() != requiresGrad_[i])
      tensor.requires_grad_(requiresGrad_[i]);
  }
  for (auto& [impl, contents] : contents_) {
    if (impl->nbytes() < contents.bytes.size()) impl->set_nbytes(contents.bytes.size());
    std::memcpy(impl->mutable_data(), contents.bytes.data(), contents.bytes.size());
  }
  random_.restore();
}

}  // namespace glowplug::aten
