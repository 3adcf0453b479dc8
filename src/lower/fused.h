#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lower/loop_ir.h"
#include "lower/pointwise_group.h"
#include "opt/graph.h"

// From a group of a segment's graph to a kernel and the sizes to call it with.
namespace glowplug::lower {

struct FusedKernel {
  // Buffers: the group's inputs, then its outputs, then Locals. No scalars. The name tells the
  // text apart from others, as far as a hash does.
  std::optional<Kernel> kernel;
  std::vector<int64_t> sizes;  // in the kernel's order
  std::string refusal;         // why there is none
};

FusedKernel lowerFused(const opt::Graph& graph, const opt::Group& group);

// Parts of it.
namespace fused {

// The loops over a group's elements: neighbouring dimensions that are one for all tensors are one
// loop. `inputs` have a stride in elements for each loop, 0 where they do not move.
struct Loops {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> inputs;
};

// `order`: dimensions of `sizes`, outermost first.
Loops loopsOver(const std::vector<int64_t>& sizes, const std::vector<size_t>& order,
                const std::vector<const opt::TensorType*>& inputs);

// How an operator of the graph is written for lowerPointwise(): its name, which operands it takes
// in which order, and its mode. Operands of kind Input have the place in `node.operands` as index.
GroupNode pointwiseOf(const opt::Graph& graph, const opt::Node& node);

DType dtypeOf(const opt::Graph& graph, common::ValueId id);

FusedKernel lowerPointwiseGroup(const opt::Graph& graph, const opt::Group& group);
FusedKernel lowerRowGroup(const opt::Graph& graph, const opt::Group& group);

}  // namespace fused
}  // namespace glowplug::lower
