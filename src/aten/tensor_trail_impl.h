#pragma once

// Private to aten/.
#include <unordered_map>

#include "aten/tensor_trail.h"
#include "aten/torch.h"

namespace glowplug::aten {

struct TensorTrail::Impl {
  // What a tensor has besides its contents.
  struct Fields {
    at::Tensor gradient;
    at::Tensor shape;  // a tensor of the same sizes, strides and storage
  };
  struct Change {
    size_t tensor;
    Fields fields;
  };

  void track(const at::Tensor& tensor);
  void note(size_t event);
  void rewind();

  std::vector<at::Tensor> tensors;
  std::vector<Fields> first, last;
  std::unordered_map<c10::TensorImpl*, size_t> numbers;
  std::unordered_map<size_t, std::vector<Change>> changes;  // by event
};

}  // namespace glowplug::aten
