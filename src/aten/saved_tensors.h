#pragma once

// Private to aten/.
#include <unordered_map>
#include <vector>

#include "aten/op_table.h"
#include "aten/tensor_trail_impl.h"

namespace glowplug::aten {

// What the tensors of a program were before a call, so that all the call did to them can be put
// back: contents, shapes, storages, .grad, requires_grad, and where the default random generator
// stood. Version counters and autograd history are not put back.
class SavedTensors {
 public:
  // Before anything is done to the tensor.
  void track(const at::Tensor& tensor);
  // Before its memory is written; also that of a tensor that is not tracked.
  void keepContents(const at::Tensor& tensor);
  // Before gradients may be added to.
  void keepGradients();
  void restore();

 private:
  struct Contents {
    c10::Storage storage;
    std::vector<char> bytes;
  };
  TensorTrail::Impl trail_;
  std::vector<bool> requiresGrad_;  // of the trail's tensors
  std::unordered_map<c10::StorageImpl*, Contents> contents_;
  RandomState random_;
};

}  // namespace glowplug::aten
