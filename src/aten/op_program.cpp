#include "aten/op_program.h"

#include <algorithm>

#include "aten/buffer_pool.h"
#include "aten/op_program_impl.h"
#include "aten/op_traits.h"
#include "aten/thread_modes.h"
#include "common/check.h"

namespace glowplug::aten {

namespace {

using Argument = OpProgram::Impl::Argument;
using Slots = std::vector<c10::IValue>;

constexpr uint32_t kNoSlot = common::ValueId::kNone;

bool isLift(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::lift_fresh" || name == "aten::lift_fresh_copy" || name == "aten::lift";
}

}  // namespace

OpProgram::OpProgram(const ir::Trace& trace, const OpTable& table,
                     const std::vector<std::vector<common::ValueId>>& lastUses,
                     std::shared_ptr<const NativeCode> native)
    : impl_(std::make_unique<Impl>(trace, table.impl(), std::move(native))) {
  const auto uses = impl_->native ? impl_->deferred(lastUses) : lastUses;
  impl_->compile(uses);
  if (!impl_->native) return;
  impl_->compileKernels(uses);
  impl_->compileLinears(uses);
  impl_->compileAttentions(uses);
  impl_->compileConvolutions(uses);
  impl_->compileRelaid();
}

OpProgram::~OpProgram() = default;

void OpProgram::Impl::compile(const std::vector<std::vector<common::ValueId>>& lastUses) {
  static const std::vector<common::ValueId> none;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const ir::Event& event = trace.events[i];
    Step step;
    if (event.kind == ir::EventKind::State) {
      step.kind = Step::Kind::State;
      step.state = event.state;
    } else if (event.kind == ir::EventKind::Op) {
      compileOperator(event, i < lastUses.size() ? lastUses[i] : none, step);
    }
    steps.push_back(step);
  }
}

void OpProgram::Impl::compileOperator(const ir::Event& event,
                                      const std::vector<common::ValueId>& lastUses, Step& step) {
  const c10::OperatorHandle& op = table.operators.at(event.op.index());
  const auto& schema = op.schema().arguments();
  GP_CHECK(schema.size() == event.operands.size(), c10::toString(op.operator_name()));
  step.op = op;
  step.kind = isLift(op) && event.operands[0].kind == ir::Operand::Kind::Const
                  ? Step::Kind::Lift
                  : Step::Kind::Operator;
  step.changesFields = event.writesInput && OpTraits(op).changesFields();
  step.writesInput = event.writesInput;
  step.arguments = arguments.size();
  std::vector<Argument> own;
  for (size_t i = 0; i < schema.size(); ++i) {
    own.push_back(argument(event.operands[i], schema[i], lastUses, step.kind == Step::Kind::Lift));
  }
  // A value that stands twice in one call can be moved only once: the last time.
  auto demote = [seen = std::vector<uint32_t>()](Argument& use) mutable {
    if (use.kind != Argument::Kind::LastUse) return;
    bool again = std::find(seen.begin(), seen.end(), use.index) != seen.end();
    if (again) use.kind = Argument::Kind::Use;
    seen.push_back(use.index);
  };
  for (size_t i = own.size(); i-- > 0;) {
    demote(own[i]);
    bool list =
        own[i].kind == Argument::Kind::Tensors || own[i].kind == Argument::Kind::OptionalTensors;
    for (uint32_t item = list ? own[i].count : 0; item-- > 0;) demote(items[own[i].index + item]);
  }
  arguments.insert(arguments.end(), own.begin(), own.end());
  step.argumentsEnd = arguments.size();
  step.results = results.size();
  for (common::ValueId result : event.results) {
    bool dropped = std::find(lastUses.begin(), lastUses.end(), result) != lastUses.end();
    results.push_back(dropped ? kNoSlot : result.value);
    step.checksIdentity |= trace.values[result.index()].dataDependent;
  }
  step.resultsEnd = results.size();
  step.lengths = lengths.size();
  lengths.insert(lengths.end(), event.resultLengths.begin(), event.resultLengths.end());
  step.lengthsEnd = lengths.size();
  addDrops(lastUses, step);
}

Argument OpProgram::Impl::argument(const ir::Operand& operand, const c10::Argument& schema,
                                   const std::vector<common::ValueId>& lastUses, bool lift) {
  using Kind = Argument::Kind;
  switch (operand.kind) {
    case ir::Operand::Kind::None: {
      bool optional = schema.type()->kind() != c10::TypeKind::TensorType;
      return {optional ? Kind::Constant : Kind::Undefined, kNoSlot};
    }
    case ir::Operand::Kind::Const: {
      const c10::IValue& value = table.constants.at(operand.constant.index());
      bool tensor = value.isTensor();
      // Results that may share memory with a constant must not hand the program the constant
      // itself.
      bool fresh = tensor && (lift || schema.alias_info() != nullptr);
      constants.push_back(value);
      return {fresh ? Kind::FreshConstant : Kind::Constant,
              static_cast<uint32_t>(constants.size() - 1)};
    }
    case ir::Operand::Kind::Value: {
      bool last = std::find(lastUses.begin(), lastUses.end(), operand.value) != lastUses.end();
      return {last ? Kind::LastUse : Kind::Use, operand.value.value};
    }
    case ir::Operand::Kind::List: {
      c10::TypePtr type = schema.type();
      if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
      c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
      bool optionalItems = element->kind() == c10::TypeKind::OptionalType;
      std::vector<Argument> own;
      for (const ir::Operand& item : operand.items) {
        Argument of = argument(item, schema, lastUses, false);
        if (item.kind == ir::Operand::Kind::None) {
          of = {optionalItems ? Kind::Constant : Kind::Undefined, kNoSlot};
        }
        own.push_back(of);
      }
      uint32_t first = items.size();
      items.insert(items.end(), own.begin(), own.end());
      return {optionalItems ? Kind::OptionalTensors : Kind::Tensors, first,
              static_cast<uint32_t>(own.size())};
    }
  }
  GP_CHECK(false, "unknown operand kind");
}

c10::IValue OpProgram::Impl::pushed(Slots& slots, const Argument& argument) const {
  switch (argument.kind) {
    case Argument::Kind::Use:
      return slots[argument.index];
    case Argument::Kind::LastUse:
      return std::move(slots[argument.index]);
    case Argument::Kind::Constant:
      return argument.index == kNoSlot ? c10::IValue() : constants[argument.index];
    case Argument::Kind::FreshConstant:
      return constants[argument.index].toTensor().clone();
    case Argument::Kind::Undefined:
      return at::Tensor();
    case Argument::Kind::Tensors: {
      c10::List<at::Tensor> list;
      list.reserve(argument.count);
      for (uint32_t i = 0; i < argument.count; ++i) {
        c10::IValue item = pushed(slots, items[argument.index + i]);
        list.push_back(item.isNone() ? at::Tensor() : std::move(item).toTensor());
      }
      return list;
    }
    case Argument::Kind::OptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(argument.count);
      for (uint32_t i = 0; i < argument.count; ++i) {
        c10::IValue item = pushed(slots, items[argument.index + i]);
        list.push_back(item.isNone() ? std::nullopt
                                     : std::optional<at::Tensor>(std::move(item).toTensor()));
      }
      return list;
    }
  }
  GP_CHECK(false, "unknown argument kind");
}

bool OpProgram::Impl::store(torch::jit::Stack& stack, Slots& slots, const Step& step) const {
  uint32_t next = step.results;
  auto put = [&](c10::IValue&& value) {
    uint32_t slot = results[next++];
    if (slot == kNoSlot) return true;
    bool known = step.checksIdentity && slots[slot].isTensor() && value.isTensor();
    if (known && !slots[slot].is(value)) return false;
    bool undefined =
        value.isTensor() && value.unsafeToTensorImpl() == c10::UndefinedTensorImpl::singleton();
    slots[slot] = undefined ? c10::IValue() : std::move(value);
    return true;
  };
  size_t first = stack.size() - (step.lengthsEnd - step.lengths);
  for (uint32_t i = step.lengths; i < step.lengthsEnd; ++i) {
    c10::IValue& value = stack[first + (i - step.lengths)];
    if (lengths[i] < 0) {
      if (!put(std::move(value))) return false;
      continue;
    }
    auto list = value.toListRef();
    if (static_cast<int32_t>(list.size()) != lengths[i]) return false;
    for (const c10::IValue& item : list) {
      if (!put(c10::IValue(item))) return false;
    }
  }
  return true;
}

bool OpProgram::Impl::runStep(const Step& step, torch::jit::Stack& stack, Slots& slots) const {
  if (step.kind == Step::Kind::State) {
    applyStateChange(step.state);
    return true;
  }
  if (step.kind == Step::Kind::Skip) return true;
  if (step.kind == Step::Kind::Kernel) {
    if (!runKernel(kernels[step.kernel], stack, slots)) return false;
  } else if (step.kind == Step::Kind::Linear) {
    if (!runLinear(linears[step.kernel], stack, slots)) return false;
  } else if (step.kind == Step::Kind::Attention) {
    if (!runAttention(attentions[step.kernel], stack, slots)) return false;
  } else if (step.kind == Step::Kind::Convolution) {
    if (!runConvolution(convolutions[step.kernel], stack, slots)) return false;
  } else if (step.kind != Step::Kind::Dropping) {
    stack.clear();
    for (uint32_t i = step.arguments; i < step.argumentsEnd; ++i) {
      stack.push_back(pushed(slots, arguments[i]));
    }
    // A lifted constant was cloned for this call already: that is what lifting is for.
    if (step.kind == Step::Kind::Operator) step.op->callBoxed(stack);
    if (!store(stack, slots, step)) return false;
  }
  if (C10_UNLIKELY(step.relaid != nullptr)) relay(slots[step.relaid->value.index()], *step.relaid);
  for (uint32_t i = step.drops; i < step.dropsEnd; ++i) slots[drops[i]] = c10::IValue();
  return true;
}

void OpProgram::Impl::trackFields(Values::Impl& values, size_t event) const {
  const std::vector<ir::Operand>& operands = trace.events[event].operands;
  auto track = [&](const ir::Operand& operand) {
    if (operand.kind != ir::Operand::Kind::Value) return;
    const c10::IValue& slot = values.slots[operand.value.index()];
    if (slot.isTensor()) values.trail.impl().track(slot.toTensor());
  };
  track(operands.front());
  for (const ir::Operand& leaf : operands.back().items) track(leaf);
}

int OpProgram::run(Values& values, size_t begin, size_t end, size_t* failed) const {
  size_t event = begin;
  int status = Done;
  try {
    WarningBuffer& warnings = values.impl().warnings;
    WarningBuffer::Scope scope(warnings);
    const PoolScope pooled(impl_->native != nullptr && impl_->native->pooled);
    try {
      py::gil_scoped_release unlocked;
      torch::jit::Stack stack;
      for (; event < end; ++event) {
        const Impl::Step& step = impl_->steps[event];
        if (C10_UNLIKELY(step.changesFields)) impl_->trackFields(values.impl(), event);
        if (!impl_->runStep(step, stack, values.impl().slots)) {
          status = Diverged;
          break;
        }
        if (C10_UNLIKELY(step.changesFields)) values.impl().trail.note(event);
        if (C10_UNLIKELY(step.writesInput)) warnings.passOn();
        if (C10_UNLIKELY(warnings.due())) {
          py::gil_scoped_acquire locked;
          warnings.flush(false);
        }
      }
    } catch (...) {
      // As PyTorch's bindings: the warnings of an operator that raised are printed, not raised.
      if (warnings.due()) warnings.flush(true);
      throw;
    }
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    status = Raised;
  }
  if (status != Done && failed != nullptr) *failed = event;
  return status;
}

}  // namespace glowplug::aten
