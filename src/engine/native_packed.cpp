// Linear layers, convolutions and attention of a trace: which run otherwise than through ATen, and
// whose weights are packed.

#include <algorithm>

#include "aten/attention.h"
#include "engine/native_draft.h"
#include "insight/counters.h"
#include "opt/convolution.h"
#include "opt/linear.h"

namespace glowplug::engine {
namespace {

using common::Reason;
using common::ValueId;

std::optional<aten::KernelTensor> tensorIf(const opt::Graph& graph, ValueId id) {
  return id.valid() ? std::optional(kernelTensor(graph, id)) : std::nullopt;
}

aten::ConvolutionPacking packingOf(const opt::Graph& graph, const opt::Convolution& found,
                                   bool primitive) {
  aten::ConvolutionPacking out;
  out.padding = found.padding;
  out.after = found.after;
  out.stride = found.stride;
  out.dilation = found.dilation;
  out.inputSizes = graph.type(found.x)->sizes;
  out.groups = found.groups;
  out.normed = found.normed;
  out.hasBias = found.normed && found.bias.valid();
  out.hasGamma = found.gamma.valid();
  out.hasBeta = found.beta.valid();
  out.epsilon = found.epsilon;
  out.biased = found.normed || found.bias.valid();
  out.adds = found.other.valid();
  const bool within = found.activation != "relu" && found.activation != "hardtanh";
  if (within) out.activation = found.activation;
  out.algorithm = found.algorithm;
  out.prepared = primitive;
  return out;
}

aten::ConvolutionCall callOf(const opt::Graph& graph, const opt::Convolution& found) {
  aten::ConvolutionCall call;
  for (const size_t n : found.members) {
    call.events.push_back(graph.nodes[n].event);
    const opt::Node& node = graph.nodes[n];
    call.version += node.barrier && node.results[0] == found.result ? 1 : 0;
  }
  call.x = kernelTensor(graph, found.x);
  for (const ValueId id : found.sources()) call.sources.push_back(kernelTensor(graph, id));
  if (!found.normed) call.bias = tensorIf(graph, found.bias);
  call.other = tensorIf(graph, found.other);
  call.result = kernelTensor(graph, found.result);
  call.padding = found.padding;
  call.stride = found.stride;
  call.dilation = found.dilation;
  call.groups = found.groups;
  call.activation = found.activation;
  call.algorithm = found.algorithm;
  call.scalars = found.scalars;
  return call;
}

// Its operators run one by one after all; what comes after expects the result's layout.
void unpack(opt::Graph& graph, const opt::Convolution& found, Reason reason) {
  for (const size_t n : found.members) {
    graph.nodes[n].state = opt::Node::State::Kept;
    graph.nodes[n].reason = reason;
  }
  graph.relaid[found.result.index()] = true;
}

}  // namespace

void HeldWeights::hold(std::shared_ptr<aten::PackedWeight> weight) {
  const std::lock_guard guard(lock);
  const bool again = std::find(held.begin(), held.end(), weight) != held.end();
  if (!again) held.push_back(std::move(weight));
}

void NativeJob::findWeights(opt::Graph& graph, const TensorOf& tensorOf) {
  for (const opt::Node& node : graph.nodes) {
    const auto remember = [&](ValueId id) {
      if (tensors_.count(id) > 0) return;
      PyObject* tensor = tensorOf(id);
      if (tensor) tensors_[id] = std::make_shared<aten::KnownTensor>(tensor);
    };
    opt::visitWeights(node, remember);
    std::optional<Reason> reason;
    const std::optional<opt::Linear> linear = opt::linearOf(graph, node, reason);
    if (!linear) continue;
    remember(linear->weight);
    const auto weight = tensors_.find(linear->weight);
    if (weight == tensors_.end()) continue;
    weights_[node.event] = packed_->weights->get(
        {weight->second}, aten::LinearPacking{linear->transposed, linear->rows});
  }
}

std::shared_ptr<std::atomic<uint64_t>> NativeJob::newMismatches() {
  return mismatches_.emplace_back(std::make_shared<std::atomic<uint64_t>>(0));
}

aten::KnownTensors NativeJob::known(const std::vector<ValueId>& values) const {
  aten::KnownTensors out;
  for (const ValueId id : values) out.push_back(tensors_.at(id));
  return out;
}

void NativeJob::addLinears(opt::Graph& graph, Draft& draft) {
  for (const opt::Layer& layer : graph.layers) {
    const opt::Node& node = graph.nodes[layer.members[0]];
    std::optional<Reason> reason;
    const std::optional<opt::Linear> linear = opt::linearOf(graph, node, reason);
    const auto weight = weights_.find(node.event);
    if (weight == weights_.end() || weight->second->possible() == aten::Packing::Never) {
      for (const size_t n : layer.members) {
        graph.nodes[n].state = opt::Node::State::Kept;
        graph.nodes[n].reason = Reason::native_weight;
      }
      continue;
    }
    aten::LinearCall call;
    for (const size_t n : layer.members) call.events.push_back(graph.nodes[n].event);
    call.x = kernelTensor(graph, linear->x);
    call.weight = kernelTensor(graph, linear->weight);
    call.bias = tensorIf(graph, linear->bias);
    call.transposed = linear->transposed;
    call.result = layer.result;
    call.activation = layer.activation;
    call.algorithm = layer.algorithm;
    call.packed = weight->second;
    call.mismatches = newMismatches();
    draft.code.linears.push_back(std::move(call));
    draft.published = false;
  }
  for (opt::Node& node : graph.nodes) {
    if (node.state != opt::Node::State::Kept) continue;
    std::optional<Reason> reason;
    const bool linear = opt::linearOf(graph, node, reason).has_value();
    if (reason || linear) node.reason = linear ? Reason::native_weight : reason;
  }
}

void NativeJob::addConvolutions(opt::Graph& graph, Draft& draft) {
  graph.relaid.resize(graph.types.size());
  for (const opt::Convolution& found : graph.convolutions) {
    const bool primitive = found.prepared && symbols_ && aten::keepsPrimitives();
    if (!primitive && !found.after.empty()) {
      const bool asked = found.prepared;
      unpack(graph, found, asked ? Reason::native_library : Reason::native_convolution);
      continue;
    }
    if (found.prepared && !primitive) insight::counters().addNative(Reason::native_library);
    auto packed = packed_->weights->get(known(found.sources()), packingOf(graph, found, primitive));
    packed_->hold(packed);
    if (packed->possible() == aten::Packing::Never) {
      unpack(graph, found, Reason::native_weight);
      continue;
    }
    aten::ConvolutionCall call = callOf(graph, found);
    call.packed = std::move(packed);
    call.mismatches = newMismatches();
    draft.code.convolutions.push_back(std::move(call));
    draft.published = false;
  }
}

void NativeJob::addAttentions(opt::Graph& graph, Draft& draft) {
  for (const opt::Attention& found : graph.attentions) {
    opt::Node& node = graph.nodes[found.node];
    if (!aten::hasAttention()) {
      node.state = opt::Node::State::Kept;
      node.reason = Reason::native_target;
      continue;
    }
    aten::AttentionCall call;
    call.event = node.event;
    call.q = kernelTensor(graph, found.q);
    call.k = kernelTensor(graph, found.k);
    call.v = kernelTensor(graph, found.v);
    call.mask = tensorIf(graph, found.mask);
    call.result = kernelTensor(graph, node.results[0]);
    call.causal = found.causal;
    call.scale = found.scale;
    call.headsPerKey = found.headsPerKey;
    call.mismatches = newMismatches();
    draft.code.attentions.push_back(std::move(call));
    draft.published = false;
  }
}

void NativeJob::addRelaid(const opt::Graph& graph, Draft& draft) {
  for (const opt::Node& node : graph.nodes) {
    if (node.state != opt::Node::State::Kept || node.results.size() != 1) continue;
    const ValueId id = node.results[0];
    if (graph.relaid[id.index()])
      draft.code.relaid.push_back({node.event, kernelTensor(graph, id)});
  }
}

}  // namespace glowplug::engine
