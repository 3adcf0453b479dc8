#pragma once

// Private to aten/: the state of this thread under which operators run, and how it is switched.
#include <array>
#include <vector>

#include "aten/torch.h"
#include "ir/trace.h"

namespace glowplug::aten {

// The key whose boxed fallback records; kept out of every comparison of thread state.
constexpr c10::DispatchKey kRecorderKey = c10::DispatchKey::DeferredInit;

// Autograd modes, the dispatcher's thread-local keys and autocast. Whatever of it differs can be
// switched by StateChanges, or cannot be replayed.
struct ThreadModes {
  uint64_t included, excluded;  // dispatch keys, without the recorder's
  bool grad, inference, forwardGrad, multithreading, viewReplay, gradLayout, autocastCache;
  int autocastNesting;
  std::array<int8_t, 4> autocastDtype;  // CPU, CUDA, XPU, MPS

  static ThreadModes now();
  bool sameApartFromNesting(const ThreadModes& other) const;
  bool dispatchesBelowAutograd() const;
  // Takes back an at::AutoDispatchBelowADInplaceOrView of the code that called the dispatcher.
  void hideDispatchBelowAutograd();
  // What differs, in words; empty if nothing does.
  std::string difference(const ThreadModes& was) const;
  // Changes that lead from `from` to this. False when there is a difference that none of them
  // covers.
  bool changesFrom(const ThreadModes& from, std::vector<ir::StateChange>& changes) const;
};

// Process-wide switches (default dtype, determinism, backends), packed.
uint64_t globalSwitches();

// An OpRecorder has started on this thread.
bool isRecording();

void applyStateChange(const ir::StateChange& change);

}  // namespace glowplug::aten
