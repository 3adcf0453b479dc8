// Kernels among a program's steps.
//
// A kernel takes the place of the last of its operators; the places of the others stay empty, and
// what would be dropped there is dropped after the kernel. Guards pin the metadata of what comes in
// and operators are functions of it, so the kernel's inputs are as recorded; that is checked all
// the same, with comparisons, since the price of being wrong is memory. Where they are not (a
// tensor got another layout behind the guards' back, or carries a tangent of forward-mode
// differentiation), the operators themselves run in the kernel's place.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "aten/op_program_impl.h"
#include "common/check.h"

namespace glowplug::aten {
namespace {

using Slots = std::vector<c10::IValue>;

c10::ScalarType scalarType(const std::string& name) {
  if (name == "f32") return c10::ScalarType::Float;
  if (name == "f64") return c10::ScalarType::Double;
  if (name == "bf16") return c10::ScalarType::BFloat16;
  if (name == "f16") return c10::ScalarType::Half;
  if (name == "i64") return c10::ScalarType::Long;
  if (name == "i32") return c10::ScalarType::Int;
  if (name == "bool") return c10::ScalarType::Bool;
  GP_CHECK(false, "a dtype that kernels have: " + name);
}

bool hasTangent(const at::Tensor& tensor) {
  const auto* meta = tensor.unsafeGetTensorImpl()->autograd_meta();
  return meta != nullptr && meta->fw_grad(0, tensor).defined();
}

std::vector<common::ValueId> valuesOf(const std::vector<KernelTensor>& tensors) {
  std::vector<common::ValueId> out;
  for (const KernelTensor& tensor : tensors) out.push_back(tensor.value);
  return out;
}

void inParallel(int64_t count, KernelCode::Body body, void* context) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) { body(context, begin, end); });
}

}  // namespace

bool OpProgram::Impl::isAsRecorded(const c10::IValue& slot, const KernelTensor& recorded,
                                   c10::ScalarType dtype) {
  if (!slot.isTensor()) return false;
  const c10::TensorImpl& impl = *slot.unsafeToTensorImpl();
  if (impl.has_symbolic_sizes_strides() || impl.layout() != c10::Layout::Strided) return false;
  if (!impl.device().is_cpu() || impl.dtype().toScalarType() != dtype) return false;
  if (impl.sizes() != at::IntArrayRef(recorded.sizes)) return false;
  if (impl.strides() != at::IntArrayRef(recorded.strides)) return false;
  const c10::DispatchKeySet keys = impl.key_set();
  if (keys.has(c10::DispatchKey::Conjugate) || keys.has(c10::DispatchKey::Negative)) return false;
  return !hasTangent(slot.toTensor());
}

std::vector<std::vector<common::ValueId>> OpProgram::Impl::deferred(
    std::vector<std::vector<common::ValueId>> lastUses) const {
  lastUses.resize(trace.events.size());
  const auto defer = [&](const std::vector<size_t>& events,
                         const std::vector<common::ValueId>& reads) {
    const size_t at = events.back();
    for (const size_t event : events) {
      if (event == at) continue;
      lastUses[at].insert(lastUses[at].end(), lastUses[event].begin(), lastUses[event].end());
      lastUses[event].clear();
    }
    for (const common::ValueId read : reads) {
      for (size_t event = 0; event < at; ++event) {
        if (std::erase(lastUses[event], read) > 0) lastUses[at].push_back(read);
      }
    }
  };
  for (const KernelCall& call : native->calls) defer(call.events, valuesOf(call.inputs));
  for (const LinearCall& call : native->linears) {
    std::vector<common::ValueId> reads{call.x.value, call.weight.value};
    if (call.bias) reads.push_back(call.bias->value);
    defer(call.events, reads);
  }
  for (const ConvolutionCall& call : native->convolutions) {
    std::vector<common::ValueId> reads = valuesOf(call.sources);
    reads.push_back(call.x.value);
    if (call.bias) reads.push_back(call.bias->value);
    if (call.other) reads.push_back(call.other->value);
    defer(call.events, reads);
  }
  return lastUses;
}

std::vector<OpProgram::Impl::Step> OpProgram::Impl::replaceOperators(
    const std::vector<size_t>& events, const std::vector<common::ValueId>& results,
    const std::vector<std::vector<common::ValueId>>& lastUses, Step::Kind kind, size_t number) {
  static const std::vector<common::ValueId> none;
  std::vector<Step> plain;
  std::vector<common::ValueId> drops = lastUses[events.back()];
  for (const size_t event : events) {
    compileOperator(trace.events[event], none, plain.emplace_back());
    for (const common::ValueId made : trace.events[event].results) {
      if (std::find(results.begin(), results.end(), made) == results.end()) drops.push_back(made);
    }
    steps[event] = Step();
  }
  Step& step = steps[events.back()];
  step.kind = kind;
  step.kernel = static_cast<uint32_t>(number);
  addDrops(drops, step);
  return plain;
}

void OpProgram::Impl::compileKernels(const std::vector<std::vector<common::ValueId>>& lastUses) {
  for (const KernelCall& call : native->calls) {
    Kernel kernel{&call, {}, {}, {}};
    for (const KernelTensor& input : call.inputs) kernel.reads.push_back(scalarType(input.dtype));
    for (const KernelTensor& output : call.outputs) {
      kernel.makes.push_back(scalarType(output.dtype));
    }
    kernel.plain = replaceOperators(call.events, valuesOf(call.outputs), lastUses,
                                    Step::Kind::Kernel, kernels.size());
    kernels.push_back(std::move(kernel));
  }
  for (const size_t event : native->removed) {
    steps[event] = Step();
    steps[event].kind = Step::Kind::Dropping;
    addDrops(lastUses[event], steps[event]);
  }
}

void OpProgram::Impl::addDrops(const std::vector<common::ValueId>& values, Step& step) {
  step.drops = drops.size();
  for (const common::ValueId value : values) drops.push_back(value.value);
  step.dropsEnd = drops.size();
}

bool OpProgram::Impl::runPlain(std::span<const Step> plain, torch::jit::Stack& stack,
                               Slots& slots) const {
  return std::all_of(plain.begin(), plain.end(),
                     [&](const Step& step) { return runStep(step, stack, slots); });
}

bool OpProgram::Impl::runKernel(const Kernel& kernel, torch::jit::Stack& stack,
                                Slots& slots) const {
  const KernelCall& call = *kernel.call;
  c10::SmallVector<void*, 16> buffers;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const c10::IValue& slot = slots[call.inputs[i].value.index()];
    if (C10_UNLIKELY(!isAsRecorded(slot, call.inputs[i], kernel.reads[i]))) {
      call.mismatches->fetch_add(1, std::memory_order_relaxed);
      if (!runPlain(kernel.plain, stack, slots)) return false;
      for (const KernelTensor& output : call.outputs) {
        relay(slots[output.value.index()], output);
      }
      return true;
    }
    const c10::TensorImpl& impl = *slot.unsafeToTensorImpl();
    buffers.push_back(const_cast<void*>(impl.data()));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const KernelTensor& output = call.outputs[i];
    at::Tensor made = at::detail::empty_strided_cpu(output.sizes, output.strides, kernel.makes[i]);
    buffers.push_back(made.data_ptr());
    slots[output.value.index()] = std::move(made);
  }
  call.code->run(buffers.data(), &inParallel);
  return true;
}

}  // namespace glowplug::aten
