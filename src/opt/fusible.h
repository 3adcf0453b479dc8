#pragma once

#include <optional>
#include <vector>

#include "opt/graph.h"

// Whether a kernel may compute an operator, and over which elements.
namespace glowplug::opt {

struct Iteration {
  std::vector<int64_t> sizes;  // of what it reads or makes, whichever is more
  bool rows = false;           // works along the last dimension
  // A linear layer: makes rows of another length than those that it reads. The matrix and the
  // vector are not rows.
  bool product = false;
};

// Nothing, and why in `reason`, if it has to run as it is.
std::optional<Iteration> iterationOf(const Graph& graph, const Node& node, common::Reason& reason);

// Sizes with the last one 1.
std::vector<int64_t> rowSizes(std::vector<int64_t> sizes);
bool isRowMajor(const TensorType& type);
// The same order of elements in memory; strides of dimensions of size 1 mean nothing.
bool sameLayout(const TensorType& a, const TensorType& b);

}  // namespace glowplug::opt
