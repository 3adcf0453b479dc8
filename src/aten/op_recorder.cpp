#include "aten/op_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "aten/op_feed_impl.h"
#include "aten/op_recorder_impl.h"
#include "common/check.h"

namespace glowplug::aten {

namespace {

thread_local OpRecorder::Impl* currentRecorder = nullptr;

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  OpRecorder::Impl* recorder = currentRecorder;
  if (recorder != nullptr) return recorder->call(op, stack);
  // The key outlived its recorder: an inference mode that began while recording ended after it and
  // restored the keys, or autograd carried them to another thread.
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, false);
  op.callBoxed(stack);
}

}  // namespace

bool isRecording() { return currentRecorder != nullptr; }

OpRecorder::OpRecorder(ir::Trace& trace, OpTable& table, OpSink& sink)
    : impl_(std::make_unique<Impl>(trace, table, sink)) {}

OpRecorder::~OpRecorder() {
  if (currentRecorder != impl_.get()) return;
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, false);
  currentRecorder = nullptr;
}

void OpRecorder::start() {
  GP_CHECK(currentRecorder == nullptr, "a recorder is already active on this thread");
  currentRecorder = impl_.get();
  impl_->modes = ThreadModes::now();
  impl_->switches = globalSwitches();
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, true);
}

void OpRecorder::stop() {
  GP_CHECK(currentRecorder == impl_.get(), "stopped on another thread, or twice");
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, false);
  currentRecorder = nullptr;
}

OpRecorder::Pause::Pause() : included_(c10::impl::tls_is_dispatch_key_included(kRecorderKey)) {
  if (included_) c10::impl::tls_set_dispatch_key_included(kRecorderKey, false);
}

OpRecorder::Pause::~Pause() {
  if (included_) c10::impl::tls_set_dispatch_key_included(kRecorderKey, true);
}

common::ValueId OpRecorder::addInput(PyObject* tensor, common::SourceId source) {
  const at::Tensor& input = THPVariable_Unpack(tensor);
  if (common::ValueId known = impl_->valueOf(input); known.valid()) return known;
  // Nothing guards the sizes of these.
  const c10::TensorImpl& impl = *input.unsafeGetTensorImpl();
  bool opaque = !input.defined() || impl.is_nested() || impl.is_python_dispatch() ||
                impl.has_symbolic_sizes_strides() || input.is_xla() || input.is_lazy();
  if (opaque) impl_->refuse("tensor_kind", "an input without plain sizes");
  if (impl_->saved) impl_->saved->track(input);
  common::ValueId value = impl_->addValue(input, Py_TYPE(tensor), true);
  impl_->trace.values[value.index()].source = source;
  return value;
}

common::ValueId OpRecorder::addResult(PyObject* tensor) {
  const at::Tensor& result = THPVariable_Unpack(tensor);
  // One that is known already goes by its new number from here on.
  return impl_->addValue(result, Py_TYPE(tensor), true);
}

common::ValueId OpRecorder::addFunctionResult(PyObject* result, PyObject* given) {
  const at::Tensor& tensor = THPVariable_Unpack(result);
  if (ValueTracker::Entry* entry = impl_->tracker.find(tensor)) {
    impl_->tracker.refresh(entry->value);
    return entry->value;
  }
  common::ValueId from = impl_->valueOf(THPVariable_Unpack(given));
  common::ValueId value = impl_->addValue(tensor, Py_TYPE(result), false);
  if (from.valid())
    impl_->trace.values[value.index()].dataDependent =
        impl_->trace.values[from.index()].dataDependent;
  return value;
}

bool OpRecorder::isExternal(PyObject* tensor) const {
  return impl_->tracker.isExternal(THPVariable_Unpack(tensor));
}

common::ValueId OpRecorder::addAlias(PyObject* result, const char* op, PyObject* self) {
  return impl_->addAlias(THPVariable_Unpack(result), op, THPVariable_Unpack(self));
}

PyObject* OpRecorder::readGrad(PyObject* tensor) {
  try {
    return THPVariable_Wrap(impl_->readGrad(THPVariable_Unpack(tensor)));
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

void OpRecorder::addWrite(const char* op, PyObject* self, PyObject* other) {
  impl_->addWrite(op, THPVariable_Unpack(self),
                  other == Py_None ? at::Tensor() : THPVariable_Unpack(other));
}

void OpRecorder::addSavedHooks(int change) { impl_->savedHooks += change; }

void OpRecorder::addGenerator(PyObject* generator) {
  impl_->generators.push_back(reinterpret_cast<THPGenerator*>(generator)->cdata);
}

void OpRecorder::syncState() {
  if (!impl_->refused) impl_->syncState();
}

void OpRecorder::addAutocastClear() {
  impl_->syncState();
  impl_->emitState({ir::StateChange::Kind::AutocastClear, 0});
}

void OpRecorder::acceptState() {
  impl_->modes = ThreadModes::now();
  impl_->switches = globalSwitches();
}

common::ValueId OpRecorder::find(PyObject* tensor) const {
  return impl_->valueOf(THPVariable_Unpack(tensor));
}

bool OpRecorder::isDataDependent(PyObject* tensor) const {
  common::ValueId value = find(tensor);
  return value.valid() && impl_->trace.values[value.index()].dataDependent;
}

// Whether the operator raises or not follows from the sizes and dtypes of its operands, which are
// guarded. Operators that look at their operands' data (indices, singular matrices...) are not
// among them.
static bool raisesByMetadata(const c10::OperatorHandle& op, const ir::Trace& trace) {
  static const std::unordered_set<std::string_view> names = {
      "aten::view",      "aten::reshape",   "aten::select",     "aten::slice",
      "aten::narrow",    "aten::expand",    "aten::permute",    "aten::transpose",
      "aten::t",         "aten::squeeze",   "aten::unsqueeze",  "aten::flatten",
      "aten::unflatten", "aten::split",     "aten::chunk",      "aten::unbind",
      "aten::cat",       "aten::stack",     "aten::matmul",     "aten::mm",
      "aten::bmm",       "aten::mv",        "aten::dot",        "aten::addmm",
      "aten::baddbmm",   "aten::linear",    "aten::conv1d",     "aten::conv2d",
      "aten::conv3d",    "aten::add",       "aten::sub",        "aten::mul",
      "aten::div",       "aten::pow",       "aten::where",      "aten::sum",
      "aten::mean",      "aten::softmax",   "aten::layer_norm", "aten::broadcast_to",
      "aten::view_as",   "aten::expand_as", "aten::reshape_as"};
  if (!names.count(op.operator_name().name)) return false;
  return std::none_of(trace.values.begin(), trace.values.end(),
                      [](const ir::Value& value) { return value.dataDependent; });
}

void OpRecorder::syncFlags() {
  for (const at::Tensor& tensor : impl_->tracker.living()) impl_->valueOf(tensor);
}

bool OpRecorder::reshapedFresh() const { return impl_->reshapedFresh; }

void OpRecorder::keepWritten() { impl_->saved = std::make_unique<SavedTensors>(); }

void OpRecorder::beforeBackward() {
  if (impl_->saved) impl_->saved->keepGradients();
}

void OpRecorder::restoreWritten() {
  if (impl_->saved) impl_->saved->restore();
}

void OpRecorder::follow(OpFeed& feed) { impl_->feed = &feed; }

std::vector<common::ValueId> OpRecorder::takeDead() { return impl_->tracker.takeDead(); }

// Tensors that live have the flags already that the replay has set.
void OpRecorder::Impl::takeFlags() {
  while (const ir::Event* event = feed->impl().nextNamed("aten::requires_grad_")) {
    common::ValueId value = event->operands[0].value;
    at::Tensor tensor = tracker.tensor(value);
    bool wanted = feed->impl().table.constants[event->operands[1].constant.index()].toBool();
    if (!tensor.defined() || explicitGrad(tensor) != wanted) return;
    ValueTracker::Entry* entry = tracker.find(tensor);
    if (entry != nullptr) entry->explicitGrad = wanted;
    emitUndispatched("aten::requires_grad_", {valueOperand(value), constant(wanted)}, {value},
                     entry == nullptr || entry->outside);
  }
}

// What the replay has done is not done again.
void OpRecorder::Impl::callFed(Call& call, torch::jit::Stack* stack) {
  py::gil_scoped_acquire gil;
  prepare(call, *stack);
  const ir::Event* taken = nullptr;
  std::string wrong = refused ? "it cannot be recorded any more"
                              : feed->impl().take(call.op, call.event.operands, &taken);
  if (!taken)
    throw std::runtime_error(
        "glowplug: the program took another way when it was run again up to where its replay had "
        "stopped: " +
        wrong);
  std::vector<c10::IValue> results = feed->impl().results(*taken, call.op.schema(), tracker);
  // Torch's factory functions take a tensor over that nobody else has; of another they would make
  // one that is unknown here.
  if (ThreadModes::now().dispatchesBelowAutograd())
    for (c10::IValue& result : results)
      if (result.isTensor() && result.toTensor().defined() &&
          tracker.find(result.toTensor()) == nullptr) {
        c10::TensorImpl& impl = *result.toTensor().unsafeGetTensorImpl();
        c10::VariableVersion version(impl.version_counter().current_version());
        result = at::Tensor(impl.shallow_copy_and_detach(version, true));
      }
  torch::jit::drop(*stack, call.op.schema().arguments().size());
  for (c10::IValue& result : results) stack->push_back(std::move(result));
  finish(call, *stack);
}

void OpRecorder::Impl::call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (feed != nullptr && feed->pending() && !refused) {
    py::gil_scoped_acquire gil;
    takeFlags();
  }
  if (feed != nullptr && feed->pending()) {
    Call call{op, traitsOf(op)};
    // Questions about metadata are no events.
    bool question = call.traits.metadataQuery() && !feed->impl().isNext(op);
    if (!question) return callFed(call, stack);
    c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
    return op.callBoxed(stack);
  }
  if (refused) {
    c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
    return op.callBoxed(stack);
  }
  Call call{op, traitsOf(op)};
  {
    py::gil_scoped_acquire gil;
    prepare(call, *stack);
    sink.enterOperator();
  }
  // Given to Python while the operator counts as running: a replay's operator warns itself, and
  // what Python does about it is not to be recorded.
  WarningBuffer warnings;
  try {
    {
      c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
      WarningBuffer::Scope scope(warnings);
      op.callBoxed(stack);
    }
    if (!warnings.empty()) {
      py::gil_scoped_acquire gil;
      warnings.flush(false);
    }
  } catch (const std::exception& error) {
    py::gil_scoped_acquire gil;
    if (!warnings.empty()) warnings.flush(true);
    sink.leaveOperator();
    // The program may catch it; at replay the operator would not even run. That is right only where
    // what is guarded decides that it raises.
    if (!raisesByMetadata(op, trace)) refuse("operator_raised", c10::toString(op.operator_name()));
    throw;
  }
  py::gil_scoped_acquire gil;
  sink.leaveOperator();
  if (!refused) finish(call, *stack);
}

// What Python does with `t.grad`, which has no operator.
TORCH_LIBRARY(glowplug, library) {
  library.def("grad(Tensor self) -> Tensor?",
              [](const at::Tensor& self) -> std::optional<at::Tensor> {
                const at::Tensor& grad = self.unsafeGetTensorImpl()->grad();
                return grad.defined() ? std::optional<at::Tensor>(grad) : std::nullopt;
              });
  // What torch warns of when Python reads `t.grad`.
  library.def("warn_of_grad(Tensor self) -> ()", [](const at::Tensor& self) {
    auto* buffer = dynamic_cast<WarningBuffer*>(c10::WarningUtils::get_warning_handler());
    if (buffer != nullptr) buffer->addGradRead(self);
  });
  library.def("set_grad(Tensor(a!) self, Tensor? grad) -> ()",
              [](const at::Tensor& self, const std::optional<at::Tensor>& grad) {
                self.mutable_grad() = grad.value_or(at::Tensor());
              });
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace glowplug::aten
