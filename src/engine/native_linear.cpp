// Linear layers of a trace: whose weights are packed, and when.

#include "engine/native_draft.h"
#include "engine/phases.h"
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
void NativeJob::addLinears(opt::Graph& graph, Draft& draft) {
  for (opt::Node& node : graph.nodes) {
    if (node.state != opt::Node::State::Kept) continue;
    std::optional<common::Reason> reason;
    const std::optional<opt::Linear> linear = opt::linearOf(graph, node, reason);
    if (reason) node.reason = reason;
    if (!linear) continue;
    node.reason = common::Reason::native_weight;  // until it is packed
    const auto weight = weights_.find(node.event);
    if (weight == weights_.end()) continue;
    aten::LinearCall call;
    call.event = node.event;
    call.x = tensorOf(graph, linear->x);
    call.weight = tensorOf(graph, linear->weight);
    if (linear->bias.valid()) call.bias = tensorOf(graph, linear->bias);
    call.result = node.results[0];
    call.packed = weight->second;
    call.mismatches = std::make_shared<std::atomic<uint64_t>>(0);
    draft.linears.push_back(std::move(call));
  }
}

// In the order in which calls use them, so that the first ones serve while the others are packed.
void NativeJob::pack(NativeReport& report, Draft& draft) {
  for (const aten::LinearCall& call : draft.linears) {
    if (isAbandoned()) return;
    {
      const Phase phase("pack");
      if (weights_.at(call.event)->pack() == aten::Packing::Never) continue;
    }
    mismatches_.push_back(call.mismatches);
    draft.code.linears.push_back(call);
    draft.published = false;
    for (OperatorFate& fate : report.operators) {
      if (fate.event == call.event) fate = {call.event, OperatorFate::Kind::Packed, 0, {}};
    }
    publish(draft, false);
  }
}

}  // namespace glowplug::engine
