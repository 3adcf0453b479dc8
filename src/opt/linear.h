#pragma once

#include <optional>

#include "common/reasons.h"
#include "opt/graph.h"

// Which operators are linear layers whose weight may be packed once and used at each call.
namespace glowplug::opt {

struct Linear {
  ValueId x, weight, bias;  // bias: may be invalid
  bool transposed = false;  // the weight is [in, out]
  int64_t rows = 0, in = 0, out = 0;
};

// aten::linear in float32 without autograd, so small that a call of a library costs more than its
// products: a kernel computes it along rows, with what is around it.
std::optional<Linear> smallLinearOf(const Graph& graph, const Node& node);

// aten::linear, and aten::addmm of a matrix and a vector, in float32 without autograd, large enough
// for the packed form to pay. The weight comes from outside the graph; whether it stays is for the
// caller to see to. Otherwise nothing, and `reason` if the operator is of this kind.
std::optional<Linear> linearOf(const Graph& graph, const Node& node,
                               std::optional<common::Reason>& reason);

}  // namespace glowplug::opt
