#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lower/loop_ir.h"
#include "lower/pointwise.h"

// From a fused group of ATen's pointwise operators to one kernel, which is generic in extents and
// strides: one nest over the group's dimensions, the last one in lanes.
namespace glowplug::lower {

// An input of the group. Views (expand, transpose, slice, select, unsqueeze) are strides: what
// moves the start of a view is in the pointer that the kernel is called with.
struct GroupInput {
  // For each dimension of the group, outermost first.
  enum Stride : uint8_t {
    Zero,  // the same element all along: broadcast, expanded, or a dimension the input has not
    One,   // neighbours
    Any    // an argument of the kernel
  };
  DType dtype = DType::F32;
  std::vector<Stride> strides;
  bool hasDims = true;  // false for a tensor without dimensions, which promotes less
};

struct GroupOperand {
  enum Kind : uint8_t { Input, Node, Integer, Real, None };
  Kind kind = None;
  size_t index = 0;  // of an input, or of an earlier node
  int64_t integer = 0;
  double real = 0;
};

struct GroupNode {
  std::string op;  // "aten::add.Tensor"
  std::vector<GroupOperand> operands;
  std::string mode;  // as PointwiseCall has it
  DType dtype = DType::F32;
};

struct PointwiseGroup {
  std::string name;
  size_t rank = 1;  // of all results, after broadcasting
  std::vector<GroupInput> inputs;
  std::vector<GroupNode> nodes;
  std::vector<size_t> outputs;  // nodes whose results are stored, contiguously
};

struct LoweredGroup {
  // Buffers: in0, in1... out0, out1...; sizes: extents n0, n1..., then for each input its strides
  // of kind Any, "s<input>_<dimension>", in elements.
  std::optional<Kernel> kernel;
  std::string refusal;  // why there is none
};

LoweredGroup lowerGroup(const PointwiseGroup& group);

}  // namespace glowplug::lower
