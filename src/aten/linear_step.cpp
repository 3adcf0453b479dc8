// Linear layers with packed weights among a program's steps.
//
// As with kernels, what does not fit at run time leaves the operators themselves to run in its
// place: a weight that has been written, another tensor, oneDNN switched off, or a precision asked
// for that lets libraries round to bfloat16.

#include <exception>

#include "aten/op_program_impl.h"
#include "aten/packed_weight_impl.h"

namespace glowplug::aten {
namespace {

// The time for packing that a call earns, of the time that it takes without.
constexpr double kOperatorsShare = 2;
constexpr double kPlainShare = 0.5;

}  // namespace

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

// What a call does while its weight is not packed, and the time that it takes.
template <class Run>
bool OpProgram::Impl::unpacked(const PackedWeight& weight, std::atomic<uint64_t>& mismatches,
                               double share, const Run& run) const {
  const bool waiting = weight.impl().waiting.load(std::memory_order_relaxed);
  if (!waiting) mismatches.fetch_add(1, std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  if (!run()) return false;
  if (waiting) native->packing->earn((std::chrono::steady_clock::now() - start) * share);
  return true;
}

bool OpProgram::Impl::runUnpacked(std::span<const Step> plain, const PackedWeight& weight,
                                  std::atomic<uint64_t>& mismatches, torch::jit::Stack& stack,
                                  std::vector<c10::IValue>& slots) const {
  return unpacked(weight, mismatches, kOperatorsShare,
                  [&] { return runPlain(plain, stack, slots); });
}

bool OpProgram::Impl::runLinear(const Linear& linear, torch::jit::Stack& stack,
                                std::vector<c10::IValue>& slots) const {
  const LinearCall& call = *linear.call;
  auto fits = [&](const KernelTensor& tensor) {
    return isAsRecorded(slots[tensor.value.index()], tensor, c10::ScalarType::Float);
  };
  if (!fits(call.x) || !fits(call.weight) || (call.bias && !fits(*call.bias)) ||
      !usesOneDnn(at::Float32Op::MATMUL)) {
    return runUnpacked(linear.plain, *call.packed, *call.mismatches, stack, slots);
  }
  const auto multiply = [&](const at::Tensor& weight) {
    const c10::List<std::optional<at::Scalar>> scalars;
    std::optional<at::Tensor> bias;
    if (call.bias) bias = slots[call.bias->value.index()].toTensor().contiguous();
    slots[call.result.index()] = linearOp->call(slots[call.x.value.index()].toTensor(), weight,
                                                bias, call.activation, scalars, call.algorithm);
    return true;
  };
  const c10::IValue& given = slots[call.weight.value.index()];
  try {
    if (const auto packed =
            call.packed->impl().current({given.unsafeToTensorImpl()}, *native->packing)) {
      return multiply(packed->weight);
    }
    // oneDNN takes the weight as it is, at four fifths of the speed: twice that of ATen's library.
    const at::Tensor weight = call.transposed ? given.toTensor().t() : given.toTensor();
    return unpacked(*call.packed, *call.mismatches, kPlainShare, [&] { return multiply(weight); });
  } catch (const std::exception& error) {  // the operators raise what eager raises
    call.packed->impl().refuse(error.what());
  }
  return runUnpacked(linear.plain, *call.packed, *call.mismatches, stack, slots);
}

}  // namespace glowplug::aten
