#include "aten/tensor_trail_impl.h"

namespace glowplug::aten {

namespace {

using Fields = TensorTrail::Impl::Fields;

// Without the warning that Tensor::grad gives for tensors that are not leaves.
const at::Tensor& gradientOf(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->grad();
}

at::Tensor shapeOf(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

bool sameShape(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset() && a.has_storage() == b.has_storage() &&
         (!a.has_storage() || a.storage().is_alias_of(b.storage()));
}

void apply(const at::Tensor& tensor, const Fields& fields) {
  if (!gradientOf(tensor).is_same(fields.gradient)) tensor.mutable_grad() = fields.gradient;
  if (!sameShape(tensor, fields.shape))
    tensor.unsafeGetTensorImpl()->shallow_copy_from(fields.shape.getIntrusivePtr());
}

}  // namespace

TensorTrail::TensorTrail() = default;
TensorTrail::~TensorTrail() = default;
TensorTrail::TensorTrail(TensorTrail&&) noexcept = default;

TensorTrail::Impl& TensorTrail::impl() {
  if (!impl_) impl_ = std::make_unique<Impl>();
  return *impl_;
}

void TensorTrail::Impl::track(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) return;
  if (!numbers.emplace(tensor.unsafeGetTensorImpl(), tensors.size()).second) return;
  tensors.push_back(tensor);
  first.push_back({gradientOf(tensor), shapeOf(tensor)});
  last.push_back(first.back());
}

void TensorTrail::Impl::note(size_t event) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& gradient = gradientOf(tensors[i]);
    if (gradient.is_same(last[i].gradient) && sameShape(tensors[i], last[i].shape)) continue;
    last[i] = {gradient, shapeOf(tensors[i])};
    changes[event].push_back({i, last[i]});
  }
}

void TensorTrail::Impl::rewind() {
  for (size_t i = 0; i < tensors.size(); ++i) apply(tensors[i], first[i]);
}

void TensorTrail::track(PyObject* tensor) {
  if (tensor && THPVariable_Check(tensor)) impl().track(THPVariable_Unpack(tensor));
}

void TensorTrail::note(size_t event) {
  if (impl_) impl_->note(event);
}

void TensorTrail::rewind() {
  if (impl_) impl_->rewind();
}

void TensorTrail::advance(size_t event) {
  if (!impl_) return;
  auto found = impl_->changes.find(event);
  if (found == impl_->changes.end()) return;
  for (const Impl::Change& change : found->second)
    apply(impl_->tensors[change.tensor], change.fields);
}

}  // namespace glowplug::aten
