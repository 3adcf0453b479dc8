#include "aten/packed_weight.h"

#include <cmath>
#include <cstring>

#include "aten/buffer_pool.h"
#include "aten/packed_weight_impl.h"

namespace glowplug::aten {
namespace {

// A weight that changes now and then is worth packing again, one that is being trained is not.
constexpr int kMostRepacks = 8;

using ReorderLinear = at::Tensor(const at::Tensor&, std::optional<int64_t>);
using ReorderConvolution = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef,
                                      at::IntArrayRef, int64_t, at::OptionalIntArrayRef);

template <class Signature>
c10::TypedOperatorHandle<Signature> operatorNamed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

using Made = PackedWeight::Impl::Made;

struct Norm {
  at::Tensor scale, shift;  // undefined without a norm
};

// y = (conv(x, w) + b - mean) / sqrt(variance + epsilon) * gamma + beta: the factors in double, the
// product with the weight in float, since weights are large and calls wait for the cores.
Norm normOf(const std::vector<at::Tensor>& sources, const ConvolutionPacking& how) {
  if (!how.normed) return {};
  std::vector<at::Tensor> dense;  // but for the weight
  for (const at::Tensor& source : sources) {
    dense.push_back(dense.empty() ? at::Tensor() : source.contiguous());
  }
  size_t next = 3;
  const auto given = [&](bool is) { return is ? dense[next++].const_data_ptr<float>() : nullptr; };
  const float* mean = dense[1].const_data_ptr<float>();
  const float* variance = dense[2].const_data_ptr<float>();
  const float* bias = given(how.hasBias);
  const float* gamma = given(how.hasGamma);
  const float* beta = given(how.hasBeta);
  Norm out{at::empty_like(dense[1]), at::empty_like(dense[1])};
  auto* scales = out.scale.mutable_data_ptr<float>();
  auto* shifts = out.shift.mutable_data_ptr<float>();
  for (int64_t c = 0; c < dense[1].numel(); ++c) {
    const double scale = (gamma ? gamma[c] : 1.0) / std::sqrt(variance[c] + how.epsilon);
    scales[c] = static_cast<float>(scale);
    const double moved = (bias ? bias[c] : 0.0) - mean[c];
    shifts[c] = static_cast<float>((beta ? beta[c] : 0.0) + moved * scale);
  }
  return out;
}

// Memory that is needed only while packing may come from the pool; what stays may not.
Made packConvolution(const std::vector<at::Tensor>& sources, const ConvolutionPacking& how) {
  const Norm norm = normOf(sources, how);
  at::Tensor weight = sources[0].contiguous();
  if (how.prepared) {
    try {
      return {at::Tensor(), norm.shift,
              std::make_shared<ConvolutionPrimitive>(weight, norm.scale, norm.shift, how)};
    } catch (const std::runtime_error& error) {
      countFailure(error.what());
    }
  }
  if (!how.after.empty()) return {};
  if (norm.scale.defined()) weight = weight * norm.scale.view({-1, 1, 1, 1});
  const PoolPause ownMemory;
  return {operatorNamed<ReorderConvolution>("mkldnn::_reorder_convolution_weight")
              .call(weight, how.padding, how.stride, how.dilation, how.groups,
                    at::IntArrayRef(how.inputSizes)),
          norm.shift, nullptr};
}

Made packLinear(const std::vector<at::Tensor>& sources, const LinearPacking& how) {
  const at::Tensor weight = how.transposed ? sources[0].t() : sources[0];
  const PoolPause ownMemory;
  return {operatorNamed<ReorderLinear>("mkldnn::_reorder_linear_weight")
              .call(weight.contiguous(), how.rows),
          at::Tensor(), nullptr};
}

// Whether writes to a tensor can be noticed; Later if not just now.
Packing noticeable(const at::Tensor& tensor) {
  const bool plain = tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
                     tensor.scalar_type() == at::kFloat;
  if (!plain || !tensor.has_storage()) return Packing::Never;
  // Inference tensors have no version counter.
  if (tensor.is_inference()) return Packing::Never;
  const c10::Storage& storage = tensor.storage();
  // Memory of a numpy array or a file is written by others.
  if (!isOwnMemory(storage.data_ptr().get_deleter())) return Packing::Never;
  // Who holds the memory besides the weight may have it without the counter. It may also be an
  // operator that runs just now and has made a view of it.
  return storage.use_count() == 1 ? Packing::Done : Packing::Later;
}

// Bit by bit.
bool contains(const c10::TensorImpl& tensor, const at::Tensor& expected) {
  return tensor.is_contiguous() && tensor.numel() == expected.numel() &&
         std::memcmp(tensor.data(), expected.const_data_ptr(), expected.nbytes()) == 0;
}

std::vector<WeightState> statesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<WeightState> out;
  for (const at::Tensor& tensor : tensors) out.emplace_back(*tensor.unsafeGetTensorImpl());
  return out;
}

}  // namespace

bool keepsPrimitives() { return onednn::functions() != nullptr; }

KnownTensor::KnownTensor(PyObject* tensor) {
  const at::Tensor& unpacked = THPVariable_Unpack(tensor);
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  impl_ = std::make_unique<Impl>(Weak(unpacked.getIntrusivePtr()), unpacked.unsafeGetTensorImpl());
}
KnownTensor::~KnownTensor() = default;

PackedWeight::PackedWeight(KnownTensors sources, LinearPacking how,
                           std::shared_ptr<PackedBytes> budget)
    : impl_(std::make_unique<Impl>()) {
  impl_->sources = std::move(sources);
  impl_->budget = std::move(budget);
  impl_->make = [how](const std::vector<at::Tensor>& sources) { return packLinear(sources, how); };
}
PackedWeight::PackedWeight(KnownTensors sources, ConvolutionPacking how,
                           std::shared_ptr<PackedBytes> budget)
    : impl_(std::make_unique<Impl>()) {
  impl_->sources = std::move(sources);
  impl_->budget = std::move(budget);
  if (how.normed) {
    impl_->firstHidden = 1;
    impl_->endHidden = 3;
  }
  impl_->make = [how = std::move(how)](const std::vector<at::Tensor>& tensors) {
    return packConvolution(tensors, how);
  };
}
PackedWeight::~PackedWeight() = default;

Packing PackedWeight::possible() const {
  std::vector<at::Tensor> tensors;
  return impl_->find(tensors);
}

Packing PackedWeight::Impl::find(std::vector<at::Tensor>& tensors) const {
  if (!hearsOfUnversioned()) return Packing::Never;
  for (const auto& source : sources) {
    const auto alive = source->impl().tensor.lock();
    if (!alive) return Packing::Later;
    tensors.emplace_back(alive);
    const Packing seen = noticeable(tensors.back());
    if (seen != Packing::Done) return seen;
  }
  return Packing::Done;
}

// A writer moves the version on when it has written: whoever writes while this reads has changed
// it by the time of the second look, or changes it later, and then current() sees that.
Packing PackedWeight::Impl::pack() {
  std::vector<at::Tensor> tensors;
  if (const Packing found = find(tensors); found != Packing::Done) return found;
  for (const at::Tensor& tensor : tensors) {
    watchUnversioned(tensor.storage().unsafeGetStorageImpl(), dirty);
  }
  const std::vector<WeightState> before = statesOf(tensors);
  const auto earlier = packed.load();
  if (earlier && earlier->states == before && dirty->load() == HandedOut::Nothing)
    return Packing::Done;
  // Of the earlier weight nothing is left but what other calls still use.
  packed.store(nullptr);
  auto share = budget->take(tensors[0].nbytes());
  if (!share) {
    refused.store(true, std::memory_order_relaxed);
    return Packing::Never;
  }
  const c10::InferenceMode plainTensors(false);
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<at::Tensor> detached;
  std::vector<at::Tensor> contents;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PoolPause ownMemory;
    const bool hidden = i >= firstHidden && i < endHidden;
    detached.push_back(hidden ? tensors[i].detach().clone(at::MemoryFormat::Contiguous)
                              : tensors[i].detach());
    if (hidden) contents.push_back(detached.back());
  }
  Made made = make(detached);
  if (!made.weight.defined() && !made.primitive) {
    refused.store(true, std::memory_order_relaxed);
    return Packing::Never;
  }
  if (statesOf(tensors) != before) return Packing::Later;
  if (dirty->load() != HandedOut::Nothing) return Packing::Later;
  auto out = std::make_shared<Packed>(std::move(made.weight), std::move(made.bias),
                                      std::move(made.primitive), before, std::move(contents),
                                      std::move(share));
  for (const at::Tensor& tensor : tensors) {
    out->storages.push_back(tensor.storage().getWeakStorageImpl());
  }
  packed.store(std::move(out));
  return Packing::Done;
}

Packing PackedWeight::Impl::tryToPack() {
  try {
    return pack();
  } catch (const std::exception& error) {
    refuse(error.what());
    return Packing::Never;
  }
}

void PackedWeight::Impl::refuse(const char* why) {
  refused.store(true, std::memory_order_relaxed);
  packed.store(nullptr);
  countFailure(why);
}

std::shared_ptr<const Packed> PackedWeight::Impl::current(const Sources& now, PackingTime& time) {
  std::shared_ptr<const Packed> made = packed.load();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (now[i] != sources[i]->impl().address) return nullptr;
  }
  if (C10_UNLIKELY(refused.load(std::memory_order_relaxed))) return nullptr;
  bool same = made && dirty->load() == HandedOut::Nothing;
  for (size_t i = 0; same && i < sources.size(); ++i) {
    same = made->states[i] == WeightState(*now[i]);
  }
  for (size_t i = firstHidden; same && i < endHidden; ++i) {
    same = contains(*now[i], made->contents[i - firstHidden]);
  }
  if (C10_LIKELY(same)) return made;
  return waiting.load(std::memory_order_acquire) ? first(time) : changed(now);
}

// Another thread that packs at the same time is not waited for.
std::shared_ptr<const Packed> PackedWeight::Impl::first(PackingTime& time) {
  const std::unique_lock held(lock, std::try_to_lock);
  if (!held || !time.any()) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  const Packing done = tryToPack();
  time.spend(std::chrono::steady_clock::now() - start);
  if (done == Packing::Later) return nullptr;
  waiting.store(false, std::memory_order_release);
  return packed.load();
}

std::shared_ptr<const Packed> PackedWeight::Impl::changed(const Sources& now) {
  const std::lock_guard held(lock);
  std::vector<WeightState> states;
  for (const c10::TensorImpl* tensor : now) states.emplace_back(*tensor);
  packed.store(nullptr);
  // An alias that was handed out may be alive, or may have written.
  HandedOut alias = HandedOut::Alias;
  const bool handedOut = dirty->compare_exchange_strong(alias, HandedOut::Nothing);
  const bool settled = seen && *seen == states && !handedOut;
  seen = std::move(states);
  if (!settled || repacks >= kMostRepacks) return nullptr;
  if (tryToPack() != Packing::Done) return nullptr;
  ++repacks;
  return packed.load();
}

}  // namespace glowplug::aten
