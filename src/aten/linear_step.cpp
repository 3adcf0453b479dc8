// Linear layers with packed weights among a program's steps.
//
// As with kernels, what does not fit at run time leaves the operators themselves to run in its
// place: a weight that has been written, another tensor, oneDNN switched off, or a precision asked
// for that lets libraries round to bfloat16.

#include <algorithm>

#include "aten/op_program_impl.h"
#include "aten/packed_weight_impl.h"

namespace glowplug::aten {
// The switches are the process's, and may be set between any two calls.
bool OpProgram::Impl::usesOneDnn(at::Float32Op op) {
  const at::Context& context = at::globalContext();
  if (!context.userEnabledMkldnn()) return false;
  const auto precision = context.float32Precision(at::Float32Backend::MKLDNN, op);
  return precision != at::Float32Precision::BF16 && precision != at::Float32Precision::TF32;
}

void OpProgram::Impl::compileLinears(const std::vector<std::vector<common::ValueId>>& lastUses) {
  for (const LinearCall& call : native->linears) {
    if (!linearOp) {
      linearOp.emplace(c10::Dispatcher::singleton()
                           .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                           .typed<LinearSignature>());
    }
    linears.push_back({&call, replaceOperators(call.events, {call.result}, lastUses,
                                               Step::Kind::Linear, linears.size())});
  }
}

// The operators of a call, and the time that they take.
bool OpProgram::Impl::runUnpacked(std::span<const Step> plain, const PackedWeight& weight,
                                  std::atomic<uint64_t>& mismatches, torch::jit::Stack& stack,
                                  std::vector<c10::IValue>& slots) const {
  const bool waiting = weight.impl().waiting.load(std::memory_order_relaxed);
  if (!waiting) mismatches.fetch_add(1, std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  for (const Step& step : plain) {
    if (!runStep(step, stack, slots)) return false;
  }
  if (waiting) native->packing->earn(std::chrono::steady_clock::now() - start);
  return true;
}

bool OpProgram::Impl::runLinear(const Linear& linear, torch::jit::Stack& stack,
                                std::vector<c10::IValue>& slots) const {
  const LinearCall& call = *linear.call;
  auto fits = [&](const KernelTensor& tensor) {
    return isAsRecorded(slots[tensor.value.index()], tensor, c10::ScalarType::Float);
  };
  const bool plain = !fits(call.x) || !fits(call.weight) || (call.bias && !fits(*call.bias));
  std::shared_ptr<const Packed> packed;
  if (!plain && usesOneDnn(at::Float32Op::MATMUL)) {
    packed = call.packed->impl().current({slots[call.weight.value.index()].unsafeToTensorImpl()},
                                         *native->packing);
  }
  if (!packed) {
    return runUnpacked(linear.plain, *call.packed, *call.mismatches, stack, slots);
  }
  const c10::List<std::optional<at::Scalar>> scalars;
  std::optional<at::Tensor> bias;
  if (call.bias) bias = slots[call.bias->value.index()].toTensor();
  slots[call.result.index()] =
      linearOp->call(slots[call.x.value.index()].toTensor(), packed->weight, bias, call.activation,
                     scalars, call.algorithm);
  return true;
}

}  // namespace glowplug::aten
