#pragma once

#include <optional>

#include "opt/graph.h"

// Which operators are convolutions whose weight may be packed once and used at each call.
namespace glowplug::opt {

// A convolution over two dimensions in float32 without autograd, by itself: members, what it reads
// and its result. Otherwise nothing, and `reason` if the operator is of this kind. Whether the
// weight stays what it is is for the caller to see to.
std::optional<Convolution> convolutionOf(const Graph& graph, size_t n,
                                         std::optional<common::Reason>& reason);

// Operands that the packed weight and bias may be made of: of convolutions and of batch norms
// with running statistics.
void visitWeights(const Node& node, const std::function<void(ValueId)>& visitor);

// aten::batch_norm that only reads its running statistics.
bool isNormInEval(const Node& node);

// The strides of a tensor of four dimensions with its channels last in memory.
std::vector<int64_t> channelsLast(const std::vector<int64_t>& sizes);

}  // namespace glowplug::opt
