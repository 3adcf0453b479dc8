// Convolutions with packed weights among a program's steps, and results that are brought into the
// layout that what comes after was made for.
//
// As with kernels, what does not fit at run time leaves the operators themselves to run in the
// convolution's place.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "aten/op_program_impl.h"
#include "aten/packed_weight_impl.h"

// The widest vectors that the processor has. What chooses among the clones runs before the thread
// sanitizer has begun, which would look into it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)
#define GLOWPLUG_FOR_EACH_PROCESSOR \
  __attribute__((target_clones("arch=x86-64-v4", "avx2", "default"), optimize("O3")))
#else
#define GLOWPLUG_FOR_EACH_PROCESSOR
#endif

namespace glowplug::aten {
namespace {

using Slots = std::vector<c10::IValue>;

const at::Tensor& tensorIn(const Slots& slots, const KernelTensor& tensor) {
  return slots[tensor.value.index()].toTensor();
}

// As often as the program has written into it; oneDNN's operators count their own.
void setVersion(const at::Tensor& made, uint32_t version) {
  c10::TensorImpl& impl = *made.unsafeGetTensorImpl();
  if (made.is_inference() || impl.version_counter().current_version() == version) return;
  impl.set_version_counter(c10::VariableVersion(version));
}

// Dimensions of one element lie anywhere.
bool isChannelsLast(const KernelTensor& tensor) {
  int64_t expected = 1;
  for (const size_t d : {1, 3, 2, 0}) {
    if (tensor.sizes[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

GLOWPLUG_FOR_EACH_PROCESSOR
void clampElements(float* begin, float* end, float least, float most) {
  for (float* at = begin; at != end; ++at) {
    const float value = *at;
    const float above = value < least ? least : value;  // false for NaN
    *at = above > most ? most : above;
  }
}

template <class Signature>
c10::TypedOperatorHandle<Signature> operatorNamed(const char* overload) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("mkldnn::_convolution_pointwise", overload)
      .typed<Signature>();
}

}  // namespace

void OpProgram::Impl::compileConvolutions(
    const std::vector<std::vector<common::ValueId>>& lastUses) {
  if (native->convolutions.empty()) return;
  convolutionOp.emplace(operatorNamed<ConvolutionSignature>(""));
  addingOp.emplace(operatorNamed<AddingSignature>("binary"));
  for (const ConvolutionCall& call : native->convolutions) {
    Convolution convolution{&call, Clamp::None, {}, {}};
    convolution.laid = {isChannelsLast(call.x), call.other && isChannelsLast(*call.other),
                        isChannelsLast(call.result)};
    if (call.activation == "relu") convolution.clamp = Clamp::Relu;
    if (call.activation == "hardtanh") convolution.clamp = Clamp::Between;
    convolution.plain = replaceOperators(call.events, {call.result.value}, lastUses,
                                         Step::Kind::Convolution, convolutions.size());
    convolutions.push_back(std::move(convolution));
  }
}

void OpProgram::Impl::compileRelaid() {
  for (const RelaidResult& result : native->relaid) steps[result.event].relaid = &result.tensor;
}

// Below autograd's keys: the copy is no write that anybody could see.
void OpProgram::Impl::relay(c10::IValue& slot, const KernelTensor& tensor) {
  if (!slot.isTensor()) return;
  const at::Tensor& made = slot.toTensor();
  if (C10_LIKELY(made.strides() == at::IntArrayRef(tensor.strides))) return;
  if (made.sizes() != at::IntArrayRef(tensor.sizes)) return;
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor copy = at::detail::empty_strided_cpu(tensor.sizes, tensor.strides, made.scalar_type());
  copy.copy_(made);
  slot = std::move(copy);
}

// oneDNN's relu and clip make 0 of NaN, ATen's keep it; the tensor is in the cache still.
void OpProgram::Impl::clamp(at::Tensor& made, const Convolution& convolution) {
  if (convolution.clamp == Clamp::None) return;
  auto* data = static_cast<float*>(made.unsafeGetTensorImpl()->mutable_data());
  const double infinity = std::numeric_limits<double>::infinity();
  const bool relu = convolution.clamp == Clamp::Relu;
  const auto least = static_cast<float>(relu ? 0 : convolution.call->scalars[0]);
  const auto most = static_cast<float>(relu ? infinity : convolution.call->scalars[1]);
  constexpr int64_t kGrain = 16384;
  at::parallel_for(0, made.numel(), kGrain, [&](int64_t begin, int64_t end) {
    clampElements(data + begin, data + end, least, most);
  });
}

// With everything there: a call of the primitive and the memory of its result.
at::Tensor OpProgram::Impl::convolve(const Convolution& convolution, const Packed& packed,
                                     const Slots& slots) {
  const ConvolutionCall& call = *convolution.call;
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto channelsLast = [&](const KernelTensor& tensor, bool already) {
    const at::Tensor& given = tensorIn(slots, tensor);
    return already ? given : given.contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = channelsLast(call.x, convolution.laid.x);
  at::Tensor other;
  if (call.other) other = channelsLast(*call.other, convolution.laid.other);
  at::Tensor made =
      convolution.laid.result
          ? at::detail::empty_strided_cpu(call.result.sizes, call.result.strides, at::kFloat)
          : at::empty(call.result.sizes, at::kFloat, at::MemoryFormat::ChannelsLast);
  at::Tensor bias;
  if (call.bias) bias = tensorIn(slots, *call.bias).contiguous();
  packed.primitive->run(x.const_data_ptr(), call.other ? other.const_data_ptr() : nullptr,
                        call.bias ? bias.const_data_ptr() : nullptr,
                        made.unsafeGetTensorImpl()->mutable_data());
  clamp(made, convolution);
  return made;
}

// Through torch's operators.
at::Tensor OpProgram::Impl::convolveByOperator(const Convolution& convolution, const Packed& packed,
                                               const Slots& slots) const {
  const ConvolutionCall& call = *convolution.call;
  std::optional<at::Tensor> bias;
  if (call.bias) {
    bias = tensorIn(slots, *call.bias).contiguous();
  } else if (packed.bias.defined()) {
    bias = packed.bias;
  }
  const at::Tensor& x = tensorIn(slots, call.x);
  const c10::List<std::optional<at::Scalar>> scalars;
  at::Tensor made;
  if (call.other) {
    made = addingOp->call(x, tensorIn(slots, *call.other), packed.weight, bias, call.padding,
                          call.stride, call.dilation, call.groups, "add", at::Scalar(1.0),
                          std::nullopt, scalars, std::nullopt);
  } else {
    const bool within = convolution.clamp == Clamp::None;
    made = convolutionOp->call(x, packed.weight, bias, call.padding, call.stride, call.dilation,
                               call.groups, within ? std::string_view(call.activation) : "none",
                               scalars, call.algorithm);
  }
  clamp(made, convolution);
  return made;
}

bool OpProgram::Impl::runConvolution(const Convolution& convolution, torch::jit::Stack& stack,
                                     Slots& slots) const {
  const ConvolutionCall& call = *convolution.call;
  const auto fits = [&](const KernelTensor& tensor) {
    return isAsRecorded(slots[tensor.value.index()], tensor, c10::ScalarType::Float);
  };
  bool fit = fits(call.x) && (!call.bias || fits(*call.bias)) && (!call.other || fits(*call.other));
  PackedWeight::Impl::Sources sources;
  for (const KernelTensor& source : call.sources) {
    fit = fit && fits(source);
    if (fit) sources.push_back(slots[source.value.index()].unsafeToTensorImpl());
  }
  std::shared_ptr<const Packed> packed;
  if (fit && usesOneDnn(at::Float32Op::CONV))
    packed = call.packed->impl().current(sources, *native->packing);
  c10::IValue& result = slots[call.result.value.index()];
  if (C10_UNLIKELY(!packed)) {
    if (!runUnpacked(convolution.plain, *call.packed, *call.mismatches, stack, slots)) {
      return false;
    }
    relay(result, call.result);
    return true;
  }
  try {
    result = packed->primitive ? convolve(convolution, *packed, slots)
                               : convolveByOperator(convolution, *packed, slots);
  } catch (const std::exception& error) {  // the operators raise what eager raises
    call.packed->impl().refuse(error.what());
    return runConvolution(convolution, stack, slots);
  }
  relay(result, call.result);
  setVersion(result.toTensor(), call.version);
  return true;
}

}  // namespace glowplug::aten
