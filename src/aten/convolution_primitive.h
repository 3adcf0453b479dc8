#pragma once

// Private to aten/.
#include <atomic>
#include <memory>
#include <vector>

#include "aten/onednn.h"
#include "aten/packed_weight.h"
#include "aten/torch.h"
#include "common/shared_slot.h"

namespace glowplug::aten {

// A convolution with its weight in oneDNN's layout, ready to run: a call gives addresses only.
class ConvolutionPrimitive {
 public:
  // `weight`: contiguous. `scale`: undefined, or a factor for each output channel. `bias`:
  // undefined, or part of the packing. Throws std::runtime_error where oneDNN refuses.
  ConvolutionPrimitive(const at::Tensor& weight, const at::Tensor& scale, at::Tensor bias,
                       const ConvolutionPacking& how);
  ~ConvolutionPrimitive();
  ConvolutionPrimitive(const ConvolutionPrimitive&) = delete;
  ConvolutionPrimitive& operator=(const ConvolutionPrimitive&) = delete;

  // Tensors with their channels last. `bias`, `other`: null unless the packing says that calls have
  // them. Any thread, several at a time. Throws std::runtime_error where oneDNN refuses.
  void run(const void* x, const void* other, const void* bias, void* result) const;

  size_t bytes() const { return weight_.nbytes(); }

 private:
  struct Made;  // for a number of threads
  using AllMade = std::vector<std::shared_ptr<const Made>>;
  std::shared_ptr<const Made> current() const;
  std::shared_ptr<const Made> make(dnnl_memory_desc* weight) const;

  const ConvolutionPacking how_;
  std::vector<int64_t> weightSizes_;  // with a dimension of groups, if there are several
  at::Tensor weight_, bias_;
  mutable common::SharedSlot<const AllMade> made_;  // at least one
};

}  // namespace glowplug::aten
