#pragma once

#include <Python.h>

// torch.autograd.Function: torch's own apply, with a forward pass that is done by others.
namespace glowplug::aten {

// What a forward pass has left on its ctx besides attributes. Borrowed; None where there is none.
struct FunctionContext {
  PyObject* saved = nullptr;              // save_for_backward
  PyObject* savedForForward = nullptr;    // save_for_forward
  PyObject* dirty = nullptr;              // mark_dirty
  PyObject* notDifferentiable = nullptr;  // mark_non_differentiable
  int64_t flags = 0;                      // materialize_grads and the like
  bool understood = true;                 // false: there is more, which only torch's compiler sets
};
FunctionContext readContext(PyObject* ctx);
// Nothing is left for apply to do about outputs.
void clearContext(PyObject* ctx);

// In place of the forward of `cls`. Apply calls it once, without gradients, with the ctx that it
// has made and the tuple of inputs; what it gives is for apply to give a history.
class FunctionForward {
 public:
  explicit FunctionForward(PyObject* cls) : cls_(cls) {}
  virtual ~FunctionForward() = default;
  virtual PyObject* forward(PyObject* ctx, PyObject* inputs) = 0;
  PyObject* cls() const { return cls_; }

 private:
  PyObject* cls_;
};

// `cls` has a setup_context of its own, to which its forward leaves the ctx.
bool setsUpContext(PyObject* cls);
// cls.apply(*inputs). New reference, or nullptr with an error set.
PyObject* applyFunction(PyObject* inputs, FunctionForward& forward);
// Whether the node would be part of a graph, as apply finds it: before it is called.
bool wantsGradient(PyObject* inputs);
bool requiresGradient(PyObject* tensor);
bool isView(PyObject* tensor);
// One of the inputs carries a tangent of forward-mode differentiation.
bool hasTangent(PyObject* inputs);

// The Python callable that does at a replay what apply did besides forward:
// attach(cls, inputs, outputs, saved, saved_for_forward, dirty, not_differentiable, flags,
// attributes, given) -> those of the outputs that `given` has the indices of. Borrowed.
PyObject* functionAttacher();

}  // namespace glowplug::aten
