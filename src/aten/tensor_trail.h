#pragma once

#include <Python.h>

#include <cstddef>
#include <memory>

namespace glowplug::aten {

// What .grad and the shape of the tensors that a replay changes was, from event to event. When the
// program is run again up to where the replay stopped, operators and opaque calls are not done a
// second time, and what it reads from these tensors between them comes from here.
class TensorTrail {
 public:
  TensorTrail();
  ~TensorTrail();
  TensorTrail(TensorTrail&&) noexcept;

  // This tensor, borrowed, is from now on of interest; something else is ignored.
  void track(PyObject* tensor);
  // The event is done: notes what is otherwise now.
  void note(size_t event);
  // Puts everything back as it was when the tensors were tracked.
  void rewind();
  // Does again what the event had changed.
  void advance(size_t event);

  struct Impl;
  Impl& impl();

 private:
  std::unique_ptr<Impl> impl_;  // made for the first tensor: most replays track none
};

}  // namespace glowplug::aten
