// Linear layers with packed weights among a program's steps.
//
// As with kernels, what does not fit at run time leaves the operator itself to run in its place: a
// weight that has been written, another tensor, oneDNN switched off, or a precision asked for that
// lets libraries round to bfloat16.

#include <algorithm>

#include "aten/op_program_impl.h"
#include "aten/packed_weight_impl.h"

namespace glowplug::aten {
namespace {

// The switches are the process's, and may be set between any two calls.
bool usesOneDnn() {
  const at::Context& context = at::globalContext();
  if (!context.userEnabledMkldnn()) return false;
  const auto precision =
      context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  return precision != at::Float32Precision::BF16 && precision != at::Float32Precision::TF32;
}

}  // namespace

void OpProgram::Impl::compileLinears() {
  for (const LinearCall& call : native->linears) {
    if (!linearOp) {
      linearOp.emplace(c10::Dispatcher::singleton()
                           .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                           .typed<LinearSignature>());
    }
    Step plain = steps[call.event];
    Step& step = steps[call.event];
    plain.dropsEnd = plain.drops;
    step.kind = Step::Kind::Linear;
    step.kernel = static_cast<uint32_t>(linears.size());
    // The operator would have moved them into its call; they are dropped after it all the same.
    for (uint32_t i = plain.arguments; i < plain.argumentsEnd; ++i) {
      if (arguments[i].kind == Argument::Kind::LastUse) arguments[i].kind = Argument::Kind::Use;
    }
    linears.push_back({&call, plain});
  }
}

bool OpProgram::Impl::runLinear(const Linear& linear, torch::jit::Stack& stack,
                                std::vector<c10::IValue>& slots) const {
  const LinearCall& call = *linear.call;
  auto fits = [&](const KernelTensor& tensor) {
    return isAsRecorded(slots[tensor.value.index()], tensor, c10::ScalarType::Float);
  };
  const bool plain = !fits(call.x) || !fits(call.weight) || (call.bias && !fits(*call.bias));
  std::shared_ptr<const Packed> packed;
  if (!plain && usesOneDnn()) {
    packed = call.packed->impl().current({slots[call.weight.value.index()].unsafeToTensorImpl()});
  }
  if (!packed) {
    call.mismatches->fetch_add(1, std::memory_order_relaxed);
    return runStep(linear.plain, stack, slots);
  }
  const c10::List<std::optional<at::Scalar>> scalars;
  std::optional<at::Tensor> bias;
  if (call.bias) bias = slots[call.bias->value.index()].toTensor();
  slots[call.result.index()] =
      linearOp->call(slots[call.x.value.index()].toTensor(), packed->weight, bias, call.epilogue,
                     scalars, call.algorithm);
  return true;
}

}  // namespace glowplug::aten
