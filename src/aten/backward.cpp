// Backward passes inside a recorded call: one event, which runs torch's own engine over the graph
// that the replayed operators have made.
#include "aten/backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <string_view>
#include <typeinfo>
#include <unordered_set>

#include "aten/op_feed_impl.h"
#include "aten/op_recorder_impl.h"
#include "common/check.h"

namespace glowplug::aten {

namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;

// An autograd.Function; the class is not exported.
bool isPython(const Node& node) {
  return std::string_view(typeid(node).name()).find("PyNode") != std::string_view::npos;
}

bool hasHooks(Node& node) {
  if (!node.pre_hooks().empty() || !node.post_hooks().empty()) return true;
  if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty()) return true;
  return node.tensor_post_acc_grad_hooks() != nullptr;
}

std::vector<at::Tensor> tensorsOf(PyObject* tuple) {
  std::vector<at::Tensor> tensors;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    tensors.push_back(THPVariable_Check(item) ? THPVariable_Unpack(item) : at::Tensor());
  }
  return tensors;
}

Edge inputEdge(const at::Tensor& input) {
  Edge edge = torch::autograd::impl::gradient_edge(input);
  // A leaf that nothing has been computed from has no accumulator yet, and gets no gradient.
  if (!edge.function) edge = Edge(torch::autograd::impl::grad_accumulator(input), 0);
  return edge;
}

std::vector<at::Tensor> backward(const c10::List<at::Tensor>& roots,
                                 const c10::List<std::optional<at::Tensor>>& gradients,
                                 bool keepGraph, bool createGraph,
                                 const c10::List<at::Tensor>& inputs, bool allowUnreachable,
                                 bool accumulate, const c10::List<at::Tensor>& /*leaves*/) {
  torch::autograd::edge_list from, to;
  torch::autograd::variable_list with;
  for (size_t i = 0; i < roots.size(); ++i) {
    from.push_back(torch::autograd::impl::gradient_edge(roots.get(i)));
    std::optional<at::Tensor> gradient = gradients.get(i);
    with.push_back(gradient.value_or(at::Tensor()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) to.push_back(inputEdge(inputs.get(i)));
  std::vector<at::Tensor> result = torch::autograd::Engine::get_default_engine().execute(
      from, with, keepGraph, createGraph, accumulate, to);
  if (inputs.empty() || accumulate) return {};
  for (size_t i = 0; i < result.size(); ++i)
    TORCH_CHECK(allowUnreachable || result[i].defined(),
                "One of the differentiated Tensors appears to not have been used in the graph. Set "
                "allow_unused=True if this is the desired behavior.");
  return result;
}

}  // namespace

BackwardReach backwardReach(PyObject* roots) {
  BackwardReach reach;
  reach.leaves = PyList_New(0);
  // A leaf keeps what accumulates its gradient only weakly.
  std::vector<decltype(Edge::function)> open;
  std::unordered_set<Node*> seen;
  auto add = [&](const Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) open.push_back(edge.function);
  };
  for (const at::Tensor& root : tensorsOf(roots))
    if (root.defined()) add(torch::autograd::impl::gradient_edge(root));
  while (!open.empty()) {
    auto node = open.back();
    open.pop_back();
    auto* leaf = dynamic_cast<AccumulateGrad*>(node.get());
    if (leaf != nullptr && !leaf->variable.defined()) {
      reach.runsPython = true;  // a graph that has been let go of: the engine says what is wrong
      continue;
    }
    reach.runsPython |= isPython(*node) || hasHooks(*node);
    if (leaf != nullptr) {
      py::object tensor = py::reinterpret_steal<py::object>(THPVariable_Wrap(leaf->variable));
      PyList_Append(reach.leaves, tensor.ptr());
    }
    for (const Edge& edge : node->next_edges()) add(edge);
  }
  return reach;
}

void OpRecorder::addBackward(const BackwardCall& call, PyObject* result) {
  std::vector<at::Tensor> results;
  if (PyTuple_Check(result)) results = tensorsOf(result);
  impl_->addBackward(call, results);
}

PyObject* OpRecorder::nextBackwardLeaves() {
  if (impl_->feed == nullptr || !impl_->feed->pending()) return nullptr;
  impl_->takeFlags();
  const ir::Event* event = impl_->feed->impl().nextNamed("glowplug::backward");
  if (event == nullptr) return nullptr;
  PyObject* leaves = PyList_New(0);
  for (const ir::Operand& leaf : event->operands.back().items) {
    at::Tensor tensor = impl_->tracker.tensor(leaf.value);
    if (!tensor.defined()) continue;
    py::object object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
    PyList_Append(leaves, object.ptr());
  }
  return leaves;
}

PyObject* OpRecorder::takeBackward(const BackwardCall& call) {
  OpFeed::Impl& feed = impl_->feed->impl();
  const ir::Event* event = feed.nextNamed("glowplug::backward");
  const c10::OperatorHandle& op = feed.table.operators.at(event->op.index());
  std::string wrong = feed.take(op, event->operands, &event);
  if (!wrong.empty()) return PyErr_SetString(PyExc_RuntimeError, wrong.c_str()), nullptr;
  if (call.accumulate || PyTuple_GET_SIZE(call.inputs) == 0) Py_RETURN_NONE;
  std::vector<c10::IValue> results = feed.results(*event, op.schema(), impl_->tracker);
  auto list = results.at(0).toTensorList();
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(list.size()));
  for (size_t i = 0; i < list.size(); ++i)
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), THPVariable_Wrap(list.get(i)));
  return tuple;
}

// Those that the trace knows: what else the graph reaches was made before the call.
ir::Operand OpRecorder::Impl::leavesOperand(PyObject* leaves) {
  ir::Operand operand;
  operand.kind = ir::Operand::Kind::List;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(leaves); ++i) {
    ValueTracker::Entry* entry = tracker.find(THPVariable_Unpack(PyList_GET_ITEM(leaves, i)));
    if (entry != nullptr) operand.items.push_back(valueOperand(entry->value));
  }
  return operand;
}

void OpRecorder::Impl::addBackward(const BackwardCall& call,
                                   const std::vector<at::Tensor>& results) {
  if (refused) return;
  ir::Event event;
  syncState();
  event.op =
      table.addOperator(c10::Dispatcher::singleton().findSchemaOrThrow("glowplug::backward", ""));
  auto list = [&](PyObject* tuple) {
    ir::Operand operand;
    operand.kind = ir::Operand::Kind::List;
    for (const at::Tensor& tensor : tensorsOf(tuple)) {
      ir::Operand item;
      if (tensor.defined()) {
        item = valueOperand(valueOf(tensor));
        if (!item.value.valid()) refuse("unknown_tensor", "of a backward pass");
      }
      operand.items.push_back(item);
    }
    return operand;
  };
  event.operands = {list(call.roots),          list(call.gradients),
                    constant(call.keepGraph),  constant(call.createGraph),
                    list(call.inputs),         constant(call.allowUnreachable),
                    constant(call.accumulate), leavesOperand(call.leaves)};
  if (refused) return;
  event.writesInput = call.accumulate;
  bool gives = !results.empty() && !call.accumulate;
  event.resultLengths.push_back(gives ? static_cast<int32_t>(results.size()) : 0);
  for (const at::Tensor& tensor : results) {
    if (!gives) break;
    auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
    common::ValueId known = tensor.defined() ? valueOf(tensor) : common::ValueId();
    event.results.push_back(known.valid() ? known : addValue(tensor, type, false));
  }
  syncTexts();
  sink.onOp(std::move(event));
}

TORCH_LIBRARY_FRAGMENT(glowplug, library) {
  library.def(
      "backward(Tensor[] roots, Tensor?[] gradients, bool keep_graph, bool create_graph, "
      "Tensor[] inputs, bool allow_unreachable, bool accumulate, Tensor[] leaves) -> Tensor[]",
      &backward);
}

}  // namespace glowplug::aten
