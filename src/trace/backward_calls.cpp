// Backward passes inside the call. The engine is run as it is, out of the recorder's sight, and
// becomes one event: a replay runs it over the graph that its own operators have made. Where Python
// code would run in the pass (autograd.Function, hooks) the call is opaque.

#include "trace/recorder.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;

namespace {

// _engine_run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs=(),
// allow_unreachable=True, accumulate_grad=True).
bool readArguments(PyObject* const* values, size_t positional, PyObject* kwnames,
                   aten::BackwardCall* call) {
  static PyObject* none = PyTuple_New(0);
  call->inputs = none;
  call->accumulate = true;
  static const char* const kKeywords[] = {"tensors",        "grad_tensors", "keep_graph",
                                          "create_graph",   "inputs",       "allow_unreachable",
                                          "accumulate_grad"};
  PyObject* found[7] = {};
  for (size_t i = 0; i < positional && i < 7; i++) found[i] = values[i];
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < named; k++)
    for (size_t i = 0; i < 7; i++)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), kKeywords[i]) == 0)
        found[i] = values[positional + static_cast<size_t>(k)];
  for (size_t i : {0, 1})
    if (!found[i] || !PyTuple_Check(found[i])) return false;
  if (found[4] && !PyTuple_Check(found[4])) return false;
  call->roots = found[0];
  call->gradients = found[1];
  call->keepGraph = found[2] == Py_True;
  call->createGraph = found[3] == Py_True;
  if (found[4]) call->inputs = found[4];
  if (found[5]) call->allowUnreachable = found[5] == Py_True;
  if (found[6]) call->accumulate = found[6] == Py_True;
  // Only tensors, not edges of the graph.
  for (PyObject* tuple : {call->roots, call->inputs})
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
      if (!aten::isTensor(PyTuple_GET_ITEM(tuple, i))) return false;
  return true;
}

}  // namespace

PyObject* Recorder::callBackward(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  aten::BackwardCall call;
  bool understood = readArguments(args.values, args.positional, args.kwnames, &call);
  aten::BackwardReach reach;
  if (understood && follow_) reach.leaves = ops_->nextBackwardLeaves();
  bool followed = reach.leaves != nullptr;
  if (understood && !followed) reach = aten::backwardReach(call.roots);
  Ref leaves = Ref::steal(reach.leaves);
  call.leaves = leaves.get();
  if (!understood || reach.runsPython)
    return callOpaque(callee, args, invoke, OpaqueKind::Unknown, "inside_backward");
  // Whether a gradient is there already decides whether it is added to.
  for (Py_ssize_t i = 0; call.accumulate && leaves && i < PyList_GET_SIZE(leaves.get()); i++) {
    static PyObject* grad = PyUnicode_InternFromString("grad");
    PyObject* leaf = PyList_GET_ITEM(leaves.get(), i);
    if (provenance_.find(leaf).valid()) Py_XDECREF(tensorAttr(leaf, grad));
  }
  if (!active_) return callAfterRefusal(invoke);
  ops_->beforeBackward();
  ops_->syncState();
  Ref result;
  if (followed) {
    result = Ref::steal(ops_->takeBackward(call));
  } else {
    EvaluationPause pause;
    aten::OpRecorder::Pause opsPause;
    result = Ref::steal(invoke());
  }
  if (!result) {
    refuse("operator_raised", "backward");
    return nullptr;
  }
  for (Py_ssize_t i = 0; call.accumulate && i < PyList_GET_SIZE(leaves.get()); i++) {
    PyObject* leaf = PyList_GET_ITEM(leaves.get(), i);
    withGradient_.emplace(leaf, Ref::borrow(leaf));
  }
  ops_->addBackward(call, result.get());
  return result.release();
}

}  // namespace glowplug::trace
