#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"

// What a program runs instead of operators when machine code has been made of them. Plain data:
// made on any thread, without Python.
namespace glowplug::aten {

// A kernel with everything fixed but the addresses.
class KernelCode {
 public:
  // Calls body(context, begin, end) for ranges that cover [0, count), perhaps on several threads.
  using Body = void (*)(void* context, int64_t begin, int64_t end);
  using Parallel = void (*)(int64_t count, Body body, void* context);

  virtual ~KernelCode() = default;
  // `buffers`: addresses of the inputs, then of the outputs. Throws std::exception where eager
  // raises. Any thread, several at a time.
  virtual void run(void* const* buffers, Parallel parallel) const = 0;
};

// A tensor that a kernel reads or makes.
struct KernelTensor {
  common::ValueId value;
  std::string dtype;  // "f32"
  std::vector<int64_t> sizes, strides;
};

// Operators of a trace that one kernel stands for.
struct KernelCall {
  std::vector<size_t> events;  // ascending; the kernel runs in the place of the last
  std::vector<KernelTensor> inputs, outputs;
  std::shared_ptr<const KernelCode> code;
  // How often a tensor was not as recorded, so that the operators ran instead.
  std::shared_ptr<std::atomic<uint64_t>> mismatches;
};

class PackedWeight;

// A linear layer through oneDNN with a packed weight, in the place of the last of its operators.
struct LinearCall {
  std::vector<size_t> events;  // ascending
  KernelTensor x, weight;
  std::optional<KernelTensor> bias;
  bool transposed = false;  // the weight is [in, out]
  common::ValueId result;
  std::string activation = "none", algorithm;  // oneDNN's names
  std::shared_ptr<const PackedWeight> packed;
  // How often the weight was not the packed one, or the operators ran instead.
  std::shared_ptr<std::atomic<uint64_t>> mismatches;
};

// A convolution through oneDNN with a packed weight, in the place of the last of its operators.
struct ConvolutionCall {
  std::vector<size_t> events;  // ascending
  KernelTensor x;
  std::vector<KernelTensor> sources;  // of the packed weight
  std::optional<KernelTensor> bias;   // where it is not packed
  std::optional<KernelTensor> other;  // added to the result before the activation
  KernelTensor result;
  uint32_t version = 0;  // of the result: how many of the operators write into it
  std::vector<int64_t> padding, stride, dilation;
  int64_t groups = 1;
  std::string activation, algorithm;  // oneDNN's names
  std::vector<double> scalars;
  std::shared_ptr<const PackedWeight> packed;
  // How often the operators ran instead.
  std::shared_ptr<std::atomic<uint64_t>> mismatches;
};

// Attention through a kernel of ours (attention.h), in the place of its operator.
struct AttentionCall {
  size_t event = 0;
  KernelTensor q, k, v, result;
  std::optional<KernelTensor> mask;
  bool causal = false;
  double scale = 1;
  int64_t headsPerKey = 1;
  // How often the operator ran instead.
  std::shared_ptr<std::atomic<uint64_t>> mismatches;
};

// The result of an operator that is copied when its strides are not these.
struct RelaidResult {
  size_t event = 0;
  KernelTensor tensor;
};

class PackingTime;

struct NativeCode {
  std::vector<KernelCall> calls;
  std::vector<LinearCall> linears;
  std::vector<ConvolutionCall> convolutions;
  std::vector<AttentionCall> attentions;
  std::vector<RelaidResult> relaid;
  std::vector<size_t> removed;           // events that need not run
  std::shared_ptr<PackingTime> packing;  // of all weights
  bool pooled = false;                   // calls take memory from the pool
};

}  // namespace glowplug::aten
