#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "codegen/target.h"
#include "engine/native.h"
#include "lower/loop_ir.h"

// Private to native*.cpp.
namespace glowplug::engine {

// What a job has made so far, and what it has still to make.
struct NativeJob::Draft {
  std::optional<codegen::Target> target;
  // Parallel to the kernels of the report.
  std::vector<lower::Kernel> kernels;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<aten::KernelCall> calls;  // without code
  aten::NativeCode code;                // what can run
  bool published = true;                // there is nothing in it that calls do not have
  std::chrono::steady_clock::time_point lastPublished = std::chrono::steady_clock::now();
};

// A value of the graph whose type is known.
inline aten::KernelTensor kernelTensor(const opt::Graph& graph, common::ValueId id) {
  const opt::TensorType& type = *graph.type(id);
  return {id, type.dtype, type.sizes, type.strides};
}

}  // namespace glowplug::engine
