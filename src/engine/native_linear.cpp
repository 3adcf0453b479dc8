// Linear layers of a trace: whose weights are packed, and when.

#include "engine/native.h"
#include "opt/linear.h"

namespace glowplug::engine {
namespace {

aten::KernelTensor tensorOf(const opt::Graph& graph, common::ValueId id) {
  const opt::TensorType& type = *graph.type(id);
  return {id, type.dtype, type.sizes, type.strides};
}

}  // namespace

void NativeJob::findWeights(const opt::Graph& graph, const TensorOf& tensorOf) {
  for (const opt::Node& node : graph.nodes) {
    std::optional<common::Reason> reason;
    const std::optional<opt::Linear> linear = opt::linearOf(graph, node, reason);
    PyObject* weight = linear ? tensorOf(linear->weight) : nullptr;
    if (!weight) continue;
    weights_[node.event] =
        std::make_shared<aten::PackedWeight>(weight, linear->transposed, linear->rows);
  }
}

// After the passes, which may have put another value in an operand's place.
void NativeJob::addLinears(opt::Graph& graph, aten::NativeCode& code) {
  for (opt::Node& node : graph.nodes) {
    if (node.state != opt::Node::State::Kept) continue;
    std::optional<common::Reason> reason;
    const std::optional<opt::Linear> linear = opt::linearOf(graph, node, reason);
    if (reason) node.reason = reason;
    if (!linear) continue;
    node.reason = common::Reason::native_weight;
    const auto weight = weights_.find(node.event);
    if (weight == weights_.end()) continue;
    if (weight->second->pack() == aten::Packing::Never) continue;
    node.reason = {};
    aten::LinearCall call;
    call.event = node.event;
    call.x = tensorOf(graph, linear->x);
    call.weight = tensorOf(graph, linear->weight);
    if (linear->bias.valid()) call.bias = tensorOf(graph, linear->bias);
    call.result = node.results[0];
    call.packed = weight->second;
    call.mismatches = std::make_shared<std::atomic<uint64_t>>(0);
    mismatches_.push_back(call.mismatches);
    code.linears.push_back(std::move(call));
  }
}

}  // namespace glowplug::engine
