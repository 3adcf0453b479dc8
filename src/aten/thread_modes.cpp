#include "aten/thread_modes.h"

#include <fmt/format.h>

#include "aten/op_program.h"
#include "aten/op_table.h"

namespace glowplug::aten {

namespace {

using Kind = ir::StateChange::Kind;

// Those that torch's wheels have kernels for. Asking about all ten devices on each call would cost
// more than all the other checks.
constexpr std::array<c10::DeviceType, 4> kAutocastDevices = {
    c10::DeviceType::CPU, c10::DeviceType::CUDA, c10::DeviceType::XPU, c10::DeviceType::MPS};

// The tracer's key is hidden here and there by torch's bindings; tracing is a reason to bypass
// anyway.
uint64_t comparable(c10::DispatchKeySet keys) {
  return keys.remove(kRecorderKey).remove(c10::DispatchKey::Tracer).raw_repr();
}

int currentAutocastNesting() {
  int nesting = at::autocast::increment_nesting() - 1;
  at::autocast::decrement_nesting();
  return nesting;
}

// What c10::InferenceMode(enabled) does to the modes.
void simulateInference(ThreadModes& modes, bool enabled) {
  modes.grad = modes.forwardGrad = modes.multithreading = !enabled;
  modes.viewReplay = false;
  modes.gradLayout = true;
  modes.inference = enabled;
  c10::DispatchKeySet included(c10::DispatchKeySet::RAW, modes.included);
  c10::DispatchKeySet excluded(c10::DispatchKeySet::RAW, modes.excluded);
  included = enabled ? included.remove(c10::DispatchKey::ADInplaceOrView)
                     : included.add(c10::DispatchKey::ADInplaceOrView);
  excluded =
      enabled ? excluded | c10::autograd_dispatch_keyset : excluded - c10::autograd_dispatch_keyset;
  modes.included = included.raw_repr();
  modes.excluded = excluded.raw_repr();
}

void switchInference(bool enabled) {
  c10::AutogradState::set_tls_state(c10::AutogradState(!enabled, enabled, !enabled, !enabled));
  auto keys = c10::impl::tls_local_dispatch_key_set();
  c10::impl::PODLocalDispatchKeySet next{};
  next.set_included(enabled ? keys.included_.remove(c10::DispatchKey::ADInplaceOrView)
                            : keys.included_.add(c10::DispatchKey::ADInplaceOrView));
  next.set_excluded(enabled ? keys.excluded_ | c10::autograd_dispatch_keyset
                            : keys.excluded_ - c10::autograd_dispatch_keyset);
  c10::impl::_force_tls_local_dispatch_key_set(next);
}

// As at::AutoDispatchBelowADInplaceOrView begins and ends, outside of which no such guard is in
// force.
void switchBelowAutograd(bool below) {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  auto hidden = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  bool inference = c10::AutogradState::get_tls_state().get_inference_mode();
  keys.excluded_ = below ? keys.excluded_ | hidden : keys.excluded_ - hidden;
  if (inference) keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset;
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

c10::DispatchKey autocastKey(c10::DeviceType device) {
  switch (device) {
    case c10::DeviceType::CPU:
      return c10::DispatchKey::AutocastCPU;
    case c10::DeviceType::CUDA:
      return c10::DispatchKey::AutocastCUDA;
    case c10::DeviceType::XPU:
      return c10::DispatchKey::AutocastXPU;
    default:
      return c10::DispatchKey::AutocastMPS;
  }
}

bool autocastOn(uint64_t excluded, size_t device) {
  return !c10::DispatchKeySet(c10::DispatchKeySet::RAW, excluded)
              .has(autocastKey(kAutocastDevices[device]));
}

// As torch.autocast enters (+1) and leaves (-1): the outermost exit drops the cached casts.
void nestAutocast(int64_t delta) {
  for (; delta > 0; --delta) at::autocast::increment_nesting();
  for (; delta < 0; ++delta) {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
}

void collectAutocast(const ThreadModes& to, ThreadModes& modes,
                     std::vector<ir::StateChange>& changes) {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    int64_t device = static_cast<int64_t>(kAutocastDevices[i]) << 8;
    if (autocastOn(modes.excluded, i) != autocastOn(to.excluded, i)) {
      changes.push_back({Kind::Autocast, device | autocastOn(to.excluded, i)});
      c10::DispatchKeySet excluded(c10::DispatchKeySet::RAW, modes.excluded);
      c10::DispatchKey key = autocastKey(kAutocastDevices[i]);
      excluded = autocastOn(to.excluded, i) ? excluded.remove(key) : excluded.add(key);
      modes.excluded = excluded.raw_repr();
    }
    if (modes.autocastDtype[i] != to.autocastDtype[i]) {
      changes.push_back({Kind::AutocastDtype, device | to.autocastDtype[i]});
      modes.autocastDtype[i] = to.autocastDtype[i];
    }
  }
  if (modes.autocastCache != to.autocastCache) {
    changes.push_back({Kind::AutocastCache, to.autocastCache});
    modes.autocastCache = to.autocastCache;
  }
  if (modes.autocastNesting != to.autocastNesting) {
    changes.push_back({Kind::AutocastNesting, to.autocastNesting - modes.autocastNesting});
    modes.autocastNesting = to.autocastNesting;
  }
}

}  // namespace

uint64_t globalSwitches() {
  const at::Context& context = at::globalContext();
  uint64_t bits = static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
  auto push = [&bits](bool value) { bits = bits << 1 | (value ? 1 : 0); };
  push(context.deterministicAlgorithms());
  push(context.deterministicAlgorithmsWarnOnly());
  push(context.deterministicFillUninitializedMemory());
  push(context.userEnabledMkldnn());
  push(context.deterministicMkldnn());
  push(context.userEnabledNNPACK());
  push(context.userEnabledCuDNN());
  push(context.benchmarkCuDNN());
  push(context.deterministicCuDNN());
  push(context.userEnabledFlashSDP());
  push(context.userEnabledMemEfficientSDP());
  push(context.userEnabledMathSDP());
  push(context.userEnabledCuDNNSDP());
  push(context.allowFP16BF16ReductionMathSDP());
  push(context.allowFP16ReductionCPU());
  push(c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python));
  auto precision = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  bits = bits << 3 | static_cast<uint64_t>(precision);
  precision = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV);
  return bits << 3 | static_cast<uint64_t>(precision);
}

ThreadModes ThreadModes::now() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  ThreadModes modes;
  modes.included = comparable(keys.included_);
  modes.excluded = comparable(keys.excluded_);
  modes.grad = autograd.get_grad_mode();
  modes.inference = autograd.get_inference_mode();
  modes.forwardGrad = autograd.get_fw_grad_mode();
  modes.multithreading = autograd.get_multithreading_enabled();
  modes.viewReplay = autograd.get_view_replay_enabled();
  modes.gradLayout = autograd.get_grad_layout_enforcement_enabled();
  modes.autocastCache = at::autocast::is_autocast_cache_enabled();
  modes.autocastNesting = currentAutocastNesting();
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    modes.autocastDtype[i] =
        static_cast<int8_t>(at::autocast::get_autocast_dtype(kAutocastDevices[i]));
  }
  return modes;
}

bool ThreadModes::sameApartFromNesting(const ThreadModes& other) const {
  return included == other.included && excluded == other.excluded && grad == other.grad &&
         inference == other.inference && forwardGrad == other.forwardGrad &&
         multithreading == other.multithreading && viewReplay == other.viewReplay &&
         gradLayout == other.gradLayout && autocastCache == other.autocastCache &&
         autocastDtype == other.autocastDtype;
}

bool ThreadModes::dispatchesBelowAutograd() const {
  return c10::DispatchKeySet(c10::DispatchKeySet::RAW, excluded)
      .has(c10::DispatchKey::ADInplaceOrView);
}

void ThreadModes::hideDispatchBelowAutograd() {
  c10::DispatchKeySet keys(c10::DispatchKeySet::RAW, excluded);
  keys = keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  if (inference) keys = keys | c10::autograd_dispatch_keyset;
  excluded = keys.raw_repr();
}

std::string ThreadModes::difference(const ThreadModes& was) const {
  auto onOff = [](const char* name, bool now, bool then) {
    return fmt::format("{}: {}, was {}", name, now ? "on" : "off", then ? "on" : "off");
  };
  if (inference != was.inference) return onOff("inference mode", inference, was.inference);
  if (grad != was.grad) return onOff("grad mode", grad, was.grad);
  if (forwardGrad != was.forwardGrad)
    return onOff("forward grad mode", forwardGrad, was.forwardGrad);
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    std::string name = "autocast on " + c10::DeviceTypeName(kAutocastDevices[i], true);
    bool now = autocastOn(excluded, i), then = autocastOn(was.excluded, i);
    if (now != then) return onOff(name.c_str(), now, then);
    if (autocastDtype[i] != was.autocastDtype[i]) {
      return fmt::format("{} dtype: {}, was {}", name,
                         c10::toString(static_cast<c10::ScalarType>(autocastDtype[i])),
                         c10::toString(static_cast<c10::ScalarType>(was.autocastDtype[i])));
    }
  }
  if (autocastCache != was.autocastCache) {
    return onOff("autocast cache", autocastCache, was.autocastCache);
  }
  if (multithreading != was.multithreading) {
    return onOff("multithreaded backward", multithreading, was.multithreading);
  }
  if (sameApartFromNesting(was)) return "";
  auto keys = [](uint64_t bits) {
    return c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, bits));
  };
  return fmt::format("dispatch keys of the thread: included differ by {}, excluded by {}",
                     keys(included ^ was.included), keys(excluded ^ was.excluded));
}

bool ThreadModes::changesFrom(const ThreadModes& from,
                              std::vector<ir::StateChange>& changes) const {
  ThreadModes modes = from;
  if (modes.inference != inference) {
    changes.push_back({Kind::InferenceMode, inference});
    simulateInference(modes, inference);
  }
  if (modes.grad != grad) changes.push_back({Kind::GradMode, grad});
  if (modes.forwardGrad != forwardGrad) changes.push_back({Kind::ForwardGradMode, forwardGrad});
  if (modes.multithreading != multithreading) {
    changes.push_back({Kind::BackwardThreads, multithreading});
  }
  modes.grad = grad;
  modes.forwardGrad = forwardGrad;
  modes.multithreading = multithreading;
  collectAutocast(*this, modes, changes);
  return sameApartFromNesting(modes);
}

void applyStateChange(const ir::StateChange& change) {
  auto device = static_cast<c10::DeviceType>(change.number >> 8);
  int64_t low = change.number & 0xff;
  c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  switch (change.kind) {
    case Kind::GradMode:
      return autograd.set_grad_mode(change.number != 0);
    case Kind::InferenceMode:
      return switchInference(change.number != 0);
    case Kind::ForwardGradMode:
      return autograd.set_fw_grad_mode(change.number != 0);
    case Kind::BackwardThreads:
      return autograd.set_multithreading_enabled(change.number != 0);
    case Kind::Autocast:
      return at::autocast::set_autocast_enabled(device, low != 0);
    case Kind::AutocastDtype:
      return at::autocast::set_autocast_dtype(device, static_cast<c10::ScalarType>(low));
    case Kind::AutocastCache:
      return at::autocast::set_autocast_cache_enabled(change.number != 0);
    case Kind::AutocastNesting:
      return nestAutocast(change.number);
    case Kind::AutocastClear:
      return at::autocast::clear_cache();
    case Kind::BelowAutograd:
      return switchBelowAutograd(change.number != 0);
    case Kind::Call:
      return;
  }
}

struct StateSnapshot::Impl {
  ThreadModes modes;
  uint64_t switches;
};

StateSnapshot::StateSnapshot()
    : impl_(std::make_unique<Impl>(Impl{ThreadModes::now(), globalSwitches()})) {}
StateSnapshot::~StateSnapshot() = default;
StateSnapshot::StateSnapshot(StateSnapshot&&) noexcept = default;
StateSnapshot& StateSnapshot::operator=(StateSnapshot&&) noexcept = default;

bool StateSnapshot::matches() const {
  return impl_->modes.sameApartFromNesting(ThreadModes::now()) &&
         impl_->switches == globalSwitches();
}

std::string StateSnapshot::difference() const {
  std::string text = ThreadModes::now().difference(impl_->modes);
  if (!text.empty()) return text;
  uint64_t switches = globalSwitches();
  if (switches == impl_->switches) return "";
  return fmt::format("torch settings (default dtype, determinism, backends): {:x}, was {:x}",
                     switches, impl_->switches);
}

const char* bypassReason() {
  if (c10::impl::dispatch_mode_enabled()) return "dispatch_mode";
  if (at::impl::torch_function_mode_enabled()) return "function_mode";
  if (at::impl::PythonTorchFunctionTLS::get_disabled_state() !=
      at::impl::TorchFunctionDisabledState::ENABLED) {
    return "function_mode";
  }
  auto keys = c10::impl::tls_local_dispatch_key_set();
  if (keys.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) {
    return "functorch";
  }
  if (isRecording()) return "nested_call";
  if (torch::jit::tracer::isTracing()) return "jit_tracing";
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly_mode";
  const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state();
  if (!hooks.stack.empty()) return "saved_tensor_hooks";
  if (torch::autograd::get_current_graph_task_id() != -1) return "inside_backward";
  return nullptr;
}

struct RandomState::Impl {
  at::Generator generator;
  at::Tensor state;
};

RandomState::RandomState() : impl_(std::make_unique<Impl>()) {
  impl_->generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(impl_->generator.mutex());
  c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
  impl_->state = impl_->generator.get_state();
}
RandomState::~RandomState() = default;

void RandomState::restore() {
  std::lock_guard<std::mutex> lock(impl_->generator.mutex());
  c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
  impl_->generator.set_state(impl_->state);
}

struct StateRestore::Impl {
  ThreadModes modes = ThreadModes::now();
  c10::AutogradState autograd = c10::AutogradState::get_tls_state();
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  at::impl::SavedTensorDefaultHooksTLS hooks = at::SavedTensorDefaultHooks::get_tls_state();
  bool dismissed = false;
};

StateRestore::StateRestore() : impl_(std::make_unique<Impl>()) {}

StateRestore::~StateRestore() {
  if (impl_->dismissed) return;
  ThreadModes now = ThreadModes::now();
  at::SavedTensorDefaultHooks::set_tls_state(impl_->hooks);
  c10::AutogradState::set_tls_state(impl_->autograd);
  c10::impl::_force_tls_local_dispatch_key_set(impl_->keys);
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    if (now.autocastDtype[i] == impl_->modes.autocastDtype[i]) continue;
    at::autocast::set_autocast_dtype(kAutocastDevices[i],
                                     static_cast<c10::ScalarType>(impl_->modes.autocastDtype[i]));
  }
  if (now.autocastCache != impl_->modes.autocastCache) {
    at::autocast::set_autocast_cache_enabled(impl_->modes.autocastCache);
  }
  nestAutocast(impl_->modes.autocastNesting - now.autocastNesting);
}

void StateRestore::dismiss() { impl_->dismissed = true; }

}  // namespace glowplug::aten
