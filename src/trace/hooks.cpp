// What programs hand to autograd besides operators. Hanging one on a tensor that was made in the
// call concerns nothing but that tensor: it is done again at each replay and breaks no graph.
// Tensors from outside keep their hooks after the call; nothing is assumed about them then.

#include <cstring>

#include "aten/rng_state.h"
#include "aten/saved_hooks.h"
#include "cpython/modules.h"
#include "trace/recorder.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;

PyObject* Recorder::callHook(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  PyObject* self = args.count() ? args.values[0] : nullptr;
  if (self && aten::isTensor(self)) {
    bool own = !isSourced(self) && ops_->find(self).valid() && !ops_->isExternal(self);
    return callOpaque(callee, args, invoke, own ? OpaqueKind::Keeps : OpaqueKind::Unknown,
                      "opaque_call");
  }
  // A handle that a call gave has a number that is another one at each replay.
  SourceId source = self ? provenance_.find(self) : SourceId();
  bool given = source.valid() && trace().sources[source.index()].step == ir::StepKind::Result;
  if (!given) return invoke();
  return callOpaque(callee, args, invoke,
                    kept_.count(self) ? OpaqueKind::Keeps : OpaqueKind::Unknown, "opaque_call");
}

// The node that computed a tensor. Of a tensor that was made in the call it is another one at each
// replay.
PyObject* Recorder::readGradFn(PyObject* tensor, SourceId source, PyObject* name) {
  Ref node = Ref::steal(Operations::loadAttr(tensor, name));
  if (!node || !active_) return node.release();
  if (source.valid()) {
    noteLoad(child(source, ir::StepKind::GetAttr, name), node.get());
    return node.release();
  }
  if (node.get() == Py_None || !ops_->find(tensor).valid()) return node.release();
  static PyObject* get = cpython::moduleAttribute("builtins", "getattr");
  PyObject* values[] = {tensor, name};
  auto invoke = [&] { return PyObject_GetAttr(tensor, name); };
  return callOpaque(get, {values, 2, nullptr}, invoke, OpaqueKind::Keeps, "opaque_call");
}

// Default hooks for saved tensors. What a pack function does while an operator runs is not seen, so
// it must be one that is known to keep to itself; with others no operator is recorded.
PyObject* Recorder::callSavedHooks(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  bool push = args.count() == 2;
  if (push && !aten::keepsToItself(args.values[0])) return invoke();
  if (!push && !savedHooks_) return invoke();
  PyObject* result = callOpaque(callee, args, invoke, OpaqueKind::Keeps, "opaque_call");
  if (!result || !active_) return result;
  savedHooks_ += push ? 1 : -1;
  ops_->addSavedHooks(push ? 1 : -1);
  return result;
}

// The default generator's state is an operator's business: it is read and set in order with the
// operators that draw.
PyObject* Recorder::callGenerator(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  PyObject* generator = args.count() ? args.values[0] : nullptr;
  PyObject* value = args.count() > 1 ? args.values[1] : nullptr;
  if (!generator || !PyCFunction_Check(callee) || !aten::isDefaultGenerator(generator) ||
      args.kwnames || args.count() > 2)
    return callUnknown(callee, args, invoke);
  bool seeds =
      std::strcmp(reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name, "manual_seed") == 0;
  if (!value && !seeds) return aten::readRngState();
  if (value && !seeds && aten::canSetState(value)) return aten::setRngState(generator, value);
  if (value && seeds && PyLong_CheckExact(value)) {
    useScalar(value);
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) return aten::seedRng(generator, value);
  }
  return callUnknown(callee, args, invoke);
}

PyObject* Recorder::callRetainGrad(const Arguments& args, const Invoke& invoke) {
  PyObject* result = invoke();
  if (result && active_ && args.count()) ops_->addWrite("retain_grad", args.values[0], Py_None);
  return result;
}

}  // namespace glowplug::trace
