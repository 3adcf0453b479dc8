// From operator calls to events: the part of OpRecorder that knows about operands and results.
#include <fmt/format.h>

#include "aten/buffer_pool.h"
#include "aten/op_feed_impl.h"
#include "aten/op_recorder_impl.h"
#include "aten/saved_hooks.h"
#include "common/check.h"

namespace glowplug::aten {

namespace {

bool isListOfTensors(const c10::IValue& value) {
  if (value.isTensorList()) return true;
  if (!value.isList()) return false;
  const c10::TypePtr& element = value.toList().elementType();
  return element->isSubtypeOf(*c10::OptionalType::ofTensor());
}

// A copy that later writes to the tensor cannot reach, made so that it can be used in any mode.
at::Tensor frozenCopy(const at::Tensor& tensor) {
  c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
  c10::InferenceMode normal(false);
  at::NoGradGuard noGrad;
  at::Tensor copy = tensor.detach().clone();
  bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (wrapped) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

bool isNumber(const c10::IValue& value) {
  return value.isBool() || value.isInt() || value.isUnsigned() || value.isDouble() ||
         value.isComplexDouble();
}

}  // namespace

ir::Operand valueOperand(common::ValueId value) {
  ir::Operand operand;
  operand.kind = ir::Operand::Kind::Value;
  operand.value = value;
  return operand;
}

bool OpRecorder::Impl::canKeep(const c10::IValue& value) const {
  if (value.isNone() || value.isBool() || value.isInt() || value.isUnsigned() || value.isDouble() ||
      value.isComplexDouble() || value.isString() || value.isDevice()) {
    return true;
  }
  if (value.isGenerator()) {
    at::Generator generator = value.toGenerator();
    return generator == at::detail::getDefaultCPUGenerator() ||
           std::find(generators.begin(), generators.end(), generator) != generators.end();
  }
  if (!value.isList()) return false;
  auto items = value.toListRef();
  return std::all_of(items.begin(), items.end(),
                     [this](const auto& item) { return canKeep(item); });
}

const OpTraits& OpRecorder::Impl::traitsOf(const c10::OperatorHandle& op) {
  auto found = traits.find(op);
  if (found == traits.end()) found = traits.emplace(op, OpTraits(op)).first;
  return found->second;
}

void OpRecorder::Impl::refuse(const char* reason, const std::string& detail) {
  if (refused) return;
  refused = true;
  sink.onRefuse(reason, detail);
}

void OpRecorder::Impl::syncTexts() {
  for (size_t i = trace.metaTexts.size(); i < table.metas.size(); ++i) {
    trace.metaTexts.push_back(table.metas[i]->text());
  }
  for (size_t i = trace.ivalueTexts.size(); i < table.constants.size(); ++i) {
    trace.ivalueTexts.push_back(textOf(table.constants[i]));
  }
  for (size_t i = trace.operatorNames.size(); i < table.operators.size(); ++i) {
    trace.operatorNames.push_back(publicTable.operatorName(common::OperatorId(i)));
  }
}

common::ValueId OpRecorder::Impl::addValue(const at::Tensor& tensor, PyTypeObject* type,
                                           bool external) {
  common::ValueId id(trace.values.size());
  ir::Value value;
  if (tensor.defined()) {
    value.meta = table.addMeta(tensor, type);
    tracker.add(tensor, id, external);
  }
  trace.values.push_back(value);
  syncTexts();
  return id;
}

common::ValueId OpRecorder::Impl::valueOf(const at::Tensor& tensor) {
  ValueTracker::Entry* entry = tracker.find(tensor);
  if (entry == nullptr) return {};
  common::ValueId value = entry->value;
  if (refused) return value;
  if (ValueTracker::storageChanged(*entry, tensor)) {
    refuse("storage_replaced", "a tensor got another storage without an operator");
    return value;
  }
  if (ValueTracker::historyAppeared(*entry, tensor)) {
    refuse("autograd_function", "a tensor got its autograd history without an operator");
    return value;
  }
  noteGradFlag(*entry, tensor);
  return value;
}

// requires_grad is set without an operator; it is found when the tensor is next met.
void OpRecorder::Impl::noteGradFlag(ValueTracker::Entry& entry, const at::Tensor& tensor) {
  bool grad = explicitGrad(tensor);
  if (grad == entry.explicitGrad) return;
  entry.explicitGrad = grad;
  emitUndispatched("aten::requires_grad_", {valueOperand(entry.value), constant(grad)},
                   {entry.value}, entry.outside);
}

void OpRecorder::Impl::emitUndispatched(const char* name, std::vector<ir::Operand> operands,
                                        std::vector<common::ValueId> results, bool writesInput) {
  syncState();
  ir::Event event;
  event.op = table.addOperator(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
  event.operands = std::move(operands);
  event.resultLengths.assign(results.size(), -1);
  event.results = std::move(results);
  event.writesInput = writesInput;
  syncTexts();
  if (feed != nullptr && feed->pending()) {
    // Python has done it again, to the same effect.
    const ir::Event* taken = nullptr;
    std::string wrong =
        feed->impl().take(table.operators[event.op.index()], event.operands, &taken);
    if (!taken) refuse("internal_error", wrong);
  }
  sink.onOp(std::move(event));
}

common::ValueId OpRecorder::Impl::addAlias(const at::Tensor& result, std::string_view op,
                                           const at::Tensor& self) {
  GP_CHECK(op == "data" || op == "grad", std::string(op));
  common::ValueId of = valueOf(self);
  if (!of.valid()) {
    refuse("unknown_tensor", fmt::format("{} of {}", op, textOf(self)));
    return {};
  }
  common::ValueId value = valueOf(result);
  bool external = op == "grad" || tracker.isExternal(self);
  if (!value.valid()) {
    auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
    value = addValue(result, type, external);
    trace.values[value.index()].dataDependent = trace.values[of.index()].dataDependent;
  }
  emitUndispatched(op == "data" ? "aten::data" : "glowplug::grad", {valueOperand(of)}, {value},
                   false);
  return value;
}

const at::Tensor& OpRecorder::Impl::readGrad(const at::Tensor& tensor) {
  WarningBuffer asked, warnings;
  {
    WarningBuffer::Scope scope(asked);
    tensor.grad();
  }
  const at::Tensor& gradient = tensor.unsafeGetTensorImpl()->grad();
  if (asked.empty()) return gradient;
  bool fed = feed != nullptr && feed->pending();  // the replay has warned
  if (common::ValueId value = valueOf(tensor); value.valid())
    emitUndispatched("glowplug::warn_of_grad", {valueOperand(value)}, {}, false);
  if (fed) return gradient;
  sink.enterOperator();
  try {
    warnings.addGradRead(tensor);
    warnings.flush(false);
  } catch (...) {
    sink.leaveOperator();
    refuse("operator_raised", "a warning about .grad");
    throw;
  }
  sink.leaveOperator();
  return gradient;
}

void OpRecorder::Impl::addWrite(std::string_view op, const at::Tensor& self,
                                const at::Tensor& other) {
  // Comes after the fact: the storage that self has now may be the other's, so not valueOf(self).
  ValueTracker::Entry* entry = tracker.find(self);
  if (entry == nullptr) return refuse("unknown_tensor", fmt::format("{} {}", op, textOf(self)));
  common::ValueId value = entry->value;
  noteGradFlag(*entry, self);
  if (op == "retain_grad") {
    return emitUndispatched("aten::retain_grad", {valueOperand(value)}, {}, entry->outside);
  }
  GP_CHECK(op == "set_data" || op == "set_grad", std::string(op));
  ir::Operand source;
  if (other.defined()) {
    common::ValueId from = valueOf(other);
    if (!from.valid()) return refuse("unknown_tensor", std::string(op));
    source = valueOperand(from);
  }
  emitUndispatched(op == "set_data" ? "aten::set_data" : "glowplug::set_grad",
                   {valueOperand(value), source}, {}, true);
  if (op == "set_data") noteReshaped(self);
  tracker.refresh(value);
  if (other.defined()) tracker.markExternal(other);  // it can be reached through self now
}

void OpRecorder::Impl::syncState() { syncState(ThreadModes::now()); }

void OpRecorder::Impl::syncState(const ThreadModes& now) {
  bool same = now.sameApartFromNesting(modes) && now.autocastNesting == modes.autocastNesting;
  if (!same) {
    std::vector<ir::StateChange> changes;
    if (!now.changesFrom(modes, changes)) {
      return refuse("torch_state", now.difference(modes));
    }
    modes = now;
    for (const ir::StateChange& change : changes) emitState(change);
  }
  if (globalSwitches() != switches) {
    refuse("torch_settings", "default dtype, determinism or a backend switch was changed");
  }
}

// Torch's bindings hide autograd's keys around factory functions and lifts, which is no state of
// the program's. It does not matter to operators that make a tensor and nothing else; the others
// (windows, made of slices) must run so at replay too, or their results would be views.
void OpRecorder::Impl::syncStateFor(Call& call, OpTraits::Arguments arguments) {
  ThreadModes now = ThreadModes::now();
  if (!now.dispatchesBelowAutograd()) return syncState(now);
  bool harmless = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (call.traits.aliases(i) || isListOfTensors(arguments[i])) harmless = false;
    if (arguments[i].isTensor() && arguments[i].toTensor().requires_grad()) harmless = false;
  }
  harmless |= call.traits.makesOneTensor();
  if (harmless) now.hideDispatchBelowAutograd();
  syncState(now);
  call.belowAutograd = !refused && harmless && !call.traits.makesOneTensor();
  if (call.belowAutograd) emitState({ir::StateChange::Kind::BelowAutograd, 1});
}

void OpRecorder::Impl::emitState(ir::StateChange change) {
  ir::Event event;
  event.kind = ir::EventKind::State;
  event.state = change;
  sink.onOp(std::move(event));
}

void OpRecorder::Impl::prepare(Call& call, const torch::jit::Stack& stack) {
  if (torch::autograd::get_current_graph_task_id() != -1) {
    return refuse("inside_backward", c10::toString(call.op.operator_name()));
  }
  if (static_cast<int>(savedHooksDepth()) != savedHooks) {
    return refuse("saved_tensor_hooks", "default hooks for saved tensors are set");
  }
  size_t count = call.op.schema().arguments().size();
  OpTraits::Arguments arguments(stack.data() + stack.size() - count, count);
  syncStateFor(call, arguments);
  call.event.op = table.addOperator(call.op);
  for (size_t i = 0; i < count && !refused; ++i) {
    bool written = call.traits.writes(i, arguments);
    call.event.operands.push_back(operand(call, arguments[i], written));
    if (i == 0) call.selfVaries = call.operandsVary;
    if (written) noteWrite(call, arguments[i]);
  }
  if (refused) return;
  call.event.random = call.traits.random(arguments);
  call.sizesFromData = call.traits.sizesDependOnData(arguments);
  call.zeroDim = call.traits.givesZeroDim(arguments);
}

void OpRecorder::Impl::noteReshaped(const at::Tensor& tensor) {
  ValueTracker::Entry* entry = tracker.find(tensor);
  reshapedFresh |= entry != nullptr && !trace.values[entry->value.index()].source.valid();
}

void OpRecorder::Impl::noteWrite(Call& call, const c10::IValue& argument) {
  auto note = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    bool external = tracker.isExternal(tensor);
    call.event.writesInput |= external;
    if (external && saved) saved->keepContents(tensor);
    if (call.traits.changesFields()) noteReshaped(tensor);
    if (auto* entry = tracker.find(tensor)) call.written.push_back({entry->value, external});
  };
  if (argument.isTensor()) return note(argument.toTensor());
  if (!isListOfTensors(argument)) return;
  for (const c10::IValue& item : argument.toListRef()) {
    if (item.isTensor()) note(item.toTensor());
  }
}

ir::Operand OpRecorder::Impl::constant(c10::IValue value) {
  ir::Operand operand;
  operand.kind = ir::Operand::Kind::Const;
  operand.constant = table.addConstant(std::move(value));
  return operand;
}

ir::Operand OpRecorder::Impl::operand(Call& call, const c10::IValue& argument, bool written) {
  if (argument.isNone()) return {};
  if (argument.isTensor()) return tensorOperand(call, argument.toTensor(), written);
  if (isListOfTensors(argument)) {
    ir::Operand list;
    list.kind = ir::Operand::Kind::List;
    for (const c10::IValue& item : argument.toListRef()) {
      list.items.push_back(item.isNone() ? ir::Operand()
                                         : tensorOperand(call, item.toTensor(), written));
    }
    return list;
  }
  if (!canKeep(argument)) {
    refuse("operand_kind",
           fmt::format("{} of {}", argument.tagKind(), c10::toString(call.op.operator_name())));
    return {};
  }
  return constant(argument);
}

bool OpRecorder::Impl::isConstantData(const Call& call, const at::Tensor& tensor) const {
  if (tensor.requires_grad() || tensor.layout() != c10::Layout::Strided || !tensor.is_cpu())
    return false;
  // Memory that something else holds (a storage, an array) could change later.
  const c10::Storage& storage = tensor.storage();
  if (storage.use_count() != 1) return false;
  if (!isOwnMemory(storage.data_ptr().get_deleter())) return false;
  if (call.traits.lift()) return true;
  // Python numbers that the bindings wrapped: Python has never seen such a tensor.
  return tensor.dim() == 0 && tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() == nullptr;
}

ir::Operand OpRecorder::Impl::tensorOperand(Call& call, const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) return {};
  common::ValueId value = valueOf(tensor);
  if (value.valid()) {
    call.operandsVary |= trace.values[value.index()].dataDependent;
    return valueOperand(value);
  }
  if (!written && isConstantData(call, tensor)) return constant(frozenCopy(tensor));
  refuse("unknown_tensor",
         fmt::format("{} {}", c10::toString(call.op.operator_name()), textOf(tensor)));
  return {};
}

void OpRecorder::Impl::finish(Call& call, const torch::jit::Stack& stack) {
  size_t count = call.op.schema().returns().size();
  OpTraits::Arguments results(stack.data() + stack.size() - count, count);
  bool onlyNumbers = count > 0 && std::all_of(results.begin(), results.end(), isNumber);
  if (call.traits.metadataQuery() && onlyNumbers && !call.operandsVary) return;
  std::vector<Number> numbers;
  for (const c10::IValue& result : results) {
    addResults(call, result, numbers);
    if (refused) return;
  }
  for (const Written& written : call.written) tracker.refresh(written.value, written.external);
  syncTexts();
  sink.onOp(std::move(call.event));
  if (call.belowAutograd) emitState({ir::StateChange::Kind::BelowAutograd, 0});
  for (const Number& number : numbers) {
    py::object object = py::reinterpret_steal<py::object>(numberToPython(number.number));
    sink.onScalar(number.value, object.ptr());
  }
}

void OpRecorder::Impl::addResults(Call& call, const c10::IValue& result,
                                  std::vector<Number>& numbers) {
  if (result.isTensor() || result.isNone()) {
    call.event.resultLengths.push_back(-1);
    at::Tensor tensor = result.isNone() ? at::Tensor() : result.toTensor();
    call.event.results.push_back(resultValue(call, tensor));
  } else if (isListOfTensors(result)) {
    auto items = result.toListRef();
    call.event.resultLengths.push_back(static_cast<int32_t>(items.size()));
    for (const c10::IValue& item : items) {
      at::Tensor tensor = item.isNone() ? at::Tensor() : item.toTensor();
      call.event.results.push_back(resultValue(call, tensor));
    }
  } else if (isNumber(result)) {
    call.event.resultLengths.push_back(-1);
    common::ValueId id(trace.values.size());
    ir::Value value;
    value.kind = ir::ValueKind::Scalar;
    trace.values.push_back(value);
    call.event.results.push_back(id);
    numbers.push_back({id, result});
  } else {
    refuse("result_kind",
           fmt::format("{} of {}", result.tagKind(), c10::toString(call.op.operator_name())));
  }
}

common::ValueId OpRecorder::Impl::resultValue(Call& call, const at::Tensor& tensor) {
  bool varies = call.sizesFromData || (call.operandsVary && !call.zeroDim);
  if (call.traits.keepsSizesOfSelf()) varies = call.sizesFromData || call.selfVaries;
  if (auto* entry = tensor.defined() ? tracker.find(tensor) : nullptr) {
    if (varies && call.traits.resizesWritten()) {
      trace.values[entry->value.index()].dataDependent = true;
    }
    tracker.refresh(entry->value);
    return entry->value;
  }
  auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  // A result may share memory with an operand that others see; its storage is then known already.
  // One without a storage (sparse) cannot be checked, and isExternal() takes it for external
  // anyway.
  common::ValueId value = addValue(tensor, type, false);
  bool strided = !tensor.defined() || tensor.layout() == c10::Layout::Strided;
  trace.values[value.index()].dataDependent = varies || !strided;
  return value;
}

}  // namespace glowplug::aten
