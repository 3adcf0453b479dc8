// Attention among a program's steps. As with kernels, what does not fit at run time leaves the
// operator itself to run.

#include <ATen/EmptyTensor.h>

#include "aten/attention.h"
#include "aten/op_program_impl.h"

namespace glowplug::aten {
namespace {

// Where the size is 1 it is the same for all.
AttentionStrides stridesOf(const KernelTensor& tensor) {
  const auto stride = [&](size_t d) { return tensor.sizes[d] == 1 ? 0 : tensor.strides[d]; };
  return {stride(0), stride(1), stride(2)};
}

AttentionShape shapeOf(const AttentionCall& call) {
  AttentionShape out;
  out.batch = call.q.sizes[0];
  out.heads = call.q.sizes[1];
  out.rows = call.q.sizes[2];
  out.columns = call.k.sizes[2];
  out.depth = call.q.sizes[3];
  out.valueDepth = call.v.sizes[3];
  out.headsPerKey = call.headsPerKey;
  out.causal = call.causal;
  out.scale = static_cast<float>(call.scale);
  return out;
}

}  // namespace

void OpProgram::Impl::compileAttentions(const std::vector<std::vector<common::ValueId>>& lastUses) {
  for (const AttentionCall& call : native->attentions) {
    attentions.push_back({&call, replaceOperators({call.event}, {call.result.value}, lastUses,
                                                  Step::Kind::Attention, attentions.size())});
  }
}

bool OpProgram::Impl::runAttention(const Attention& attention, torch::jit::Stack& stack,
                                   std::vector<c10::IValue>& slots) const {
  const AttentionCall& call = *attention.call;
  const auto fits = [&](const KernelTensor& tensor) {
    return isAsRecorded(slots[tensor.value.index()], tensor, c10::ScalarType::Float);
  };
  if (!fits(call.q) || !fits(call.k) || !fits(call.v) || (call.mask && !fits(*call.mask))) {
    call.mismatches->fetch_add(1, std::memory_order_relaxed);
    if (!runPlain(attention.plain, stack, slots)) return false;
    relay(slots[call.result.value.index()], call.result);
    return true;
  }
  const auto data = [&](const KernelTensor& tensor) {
    return static_cast<const float*>(slots[tensor.value.index()].unsafeToTensorImpl()->data());
  };
  at::Tensor made =
      at::detail::empty_strided_cpu(call.result.sizes, call.result.strides, c10::ScalarType::Float);
  AttentionTensors tensors{};
  tensors.q = data(call.q);
  tensors.k = data(call.k);
  tensors.v = data(call.v);
  tensors.out = made.mutable_data_ptr<float>();
  tensors.qStrides = stridesOf(call.q);
  tensors.kStrides = stridesOf(call.k);
  tensors.vStrides = stridesOf(call.v);
  tensors.outStrides = stridesOf(call.result);
  if (call.mask) {
    tensors.mask = data(*call.mask);
    tensors.maskStrides = stridesOf(*call.mask);
  }
  aten::runAttention(shapeOf(call), tensors);
  slots[call.result.value.index()] = std::move(made);
  return true;
}

}  // namespace glowplug::aten
