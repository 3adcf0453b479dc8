// Convolutions with packed weights among a program's steps, and results that are brought into the
// layout that what comes after was made for.
//
// As with kernels, what does not fit at run time leaves the operators themselves to run in the
// convolution's place.

#include <ATen/EmptyTensor.h>

#include <algorithm>

#include "aten/op_program_impl.h"
#include "aten/packed_weight_impl.h"

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
    Convolution convolution{&call, Clamp::None, {}};
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
  const at::AutoDispatchBelowADInplaceOrView below;
  if (convolution.clamp == Clamp::Relu) {
    at::relu_(made);
  } else {
    at::hardtanh_(made, convolution.call->scalars[0], convolution.call->scalars[1]);
  }
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
  std::optional<at::Tensor> bias;
  if (call.bias) {
    bias = tensorIn(slots, *call.bias);
  } else if (packed->bias.defined()) {
    bias = packed->bias;
  }
  const at::Tensor& x = tensorIn(slots, call.x);
  const c10::List<std::optional<at::Scalar>> scalars;
  at::Tensor made;
  if (call.other) {
    made = addingOp->call(x, tensorIn(slots, *call.other), packed->weight, bias, call.padding,
                          call.stride, call.dilation, call.groups, "add", at::Scalar(1.0),
                          std::nullopt, scalars, std::nullopt);
  } else {
    const bool within = convolution.clamp == Clamp::None;
    made = convolutionOp->call(x, packed->weight, bias, call.padding, call.stride, call.dilation,
                               call.groups, within ? std::string_view(call.activation) : "none",
                               scalars, call.algorithm);
  }
  clamp(made, convolution);
  result = std::move(made);
  relay(result, call.result);
  setVersion(result.toTensor(), call.version);
  return true;
}

}  // namespace glowplug::aten
