#include "aten/function_node.h"

#include <torch/csrc/autograd/python_function.h>

#include "aten/op_recorder_impl.h"

namespace glowplug::aten {

namespace {

using py::object;
using py::reinterpret_borrow;
using py::reinterpret_steal;

// Apply, its class and its forward are three things to torch: the class below has nothing of a
// program's but the ctx, which is of the program's own class.
struct Running {
  FunctionForward* forward;
  object ctx;
  Running* outer;
};
thread_local Running* running = nullptr;

PyObject* makeContext(PyObject*, PyObject*) {
  object made =
      reinterpret_steal<object>(PyObject_GetAttrString(running->forward->cls(), "_backward_cls"));
  if (!made) return nullptr;
  running->ctx = reinterpret_steal<object>(PyObject_CallNoArgs(made.ptr()));
  return running->ctx.inc_ref().ptr();
}

PyObject* forwardWithContext(PyObject*, PyObject* args) {
  object inputs = reinterpret_steal<object>(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
  object ctx = running->ctx;
  return running->forward->forward(ctx.ptr(), inputs.ptr());
}

PyObject* forwardWithoutContext(PyObject*, PyObject* args) {
  object ctx = running->ctx;
  return running->forward->forward(ctx.ptr(), args);
}

PyObject* contextIsSetUp(PyObject*, PyObject*) { Py_RETURN_NONE; }

PyMethodDef makeContextDef{"_backward_cls", makeContext, METH_NOARGS, nullptr};
PyMethodDef withContextDef{"forward", forwardWithContext, METH_VARARGS, nullptr};
PyMethodDef withoutContextDef{"forward", forwardWithoutContext, METH_VARARGS, nullptr};
PyMethodDef isSetUpDef{"setup_context", contextIsSetUp, METH_VARARGS, nullptr};

// torch.autograd.function._SingleLevelFunction.setup_context; borrowed.
PyObject* baseSetup() {
  static PyObject* setup = [] {
    object modules = reinterpret_borrow<object>(PyImport_GetModuleDict());
    PyObject* module = PyDict_GetItemString(modules.ptr(), "torch.autograd.function");
    object base = reinterpret_steal<object>(
        module ? PyObject_GetAttrString(module, "_SingleLevelFunction") : nullptr);
    return base ? PyObject_GetAttrString(base.ptr(), "setup_context") : nullptr;
  }();
  return setup;
}

// Whatever else torch asks the class for is the program's to say.
PyObject* getAttribute(PyObject* type, PyObject* name) {
  PyObject* found = PyType_Type.tp_getattro(type, name);
  if (found != nullptr || running == nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError))
    return found;
  PyErr_Clear();
  return PyObject_GetAttr(running->forward->cls(), name);
}

PyObject* metaclass() {
  static PyType_Slot slots[] = {{Py_tp_getattro, reinterpret_cast<void*>(getAttribute)},
                                {0, nullptr}};
  static PyType_Spec spec{"glowplug.FunctionMeta", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  static PyObject* type =
      PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(&PyType_Type));
  return type;
}

// The bound `apply` of a class that takes everything from `running`.
PyObject* applyOf(bool setsUp) {
  auto make = [](bool own) -> PyObject* {
    PyObject* forward = PyCFunction_New(own ? &withoutContextDef : &withContextDef, nullptr);
    PyObject* setup = own ? PyCFunction_New(&isSetUpDef, nullptr) : Py_NewRef(baseSetup());
    PyObject* type = PyObject_CallFunction(metaclass(), "s(O){sNsNsN}", "Function",
                                           reinterpret_cast<PyObject*>(&THPFunctionType), "forward",
                                           forward, "setup_context", setup, "_backward_cls",
                                           PyCFunction_New(&makeContextDef, nullptr));
    object cls = reinterpret_steal<object>(type);
    return cls ? PyObject_GetAttrString(cls.ptr(), "apply") : nullptr;
  };
  static PyObject* plain = make(false);
  static PyObject* settingUp = make(true);
  return setsUp ? settingUp : plain;
}

PyObject* orNone(PyObject* value) { return value != nullptr ? value : Py_None; }
void put(PyObject*& field, PyObject* value) {
  Py_XSETREF(field, value == Py_None ? nullptr : Py_NewRef(value));
}

constexpr int64_t Materialize = 1, PureView = 2, MaterializeAll = 4, ClearOnAccess = 8;

// Replays: the outputs are there already.
class Attach : public FunctionForward {
 public:
  explicit Attach(PyObject* const* args) : FunctionForward(args[0]), args_(args) {}

  PyObject* forward(PyObject* ctx, PyObject* /*inputs*/) override {
    auto* function = reinterpret_cast<THPFunction*>(ctx);
    put(function->to_save, args_[3]);
    put(function->saved_for_forward, args_[4]);
    put(function->dirty_tensors, args_[5]);
    put(function->non_differentiable, args_[6]);
    int64_t flags = PyLong_AsLongLong(args_[7]);
    function->materialize_grads = (flags & Materialize) != 0;
    function->pure_view = (flags & PureView) != 0;
    function->materialize_non_diff_grads = (flags & MaterializeAll) != 0;
    function->clear_saved_tensors_on_access = (flags & ClearOnAccess) != 0;
    if (PyDict_GET_SIZE(args_[8]) > 0) {
      object dict = reinterpret_steal<object>(PyObject_GenericGetDict(ctx, nullptr));
      if (!dict || PyDict_Update(dict.ptr(), args_[8]) < 0) return nullptr;
    }
    return Py_NewRef(args_[2]);
  }

 private:
  PyObject* const* args_;
};

PyObject* attach(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 10) return PyErr_Format(PyExc_TypeError, "takes 10 arguments, got %zd", count);
  Attach forward(args);
  object outputs = reinterpret_steal<object>(applyFunction(args[1], forward));
  if (!outputs) return nullptr;
  PyObject* given = args[9];
  PyObject* result = PyTuple_New(PyTuple_GET_SIZE(given));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
    Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, i));
    PyTuple_SET_ITEM(result, i, Py_NewRef(PyTuple_GET_ITEM(outputs.ptr(), index)));
  }
  return result;
}

PyMethodDef attachDef{"attach", _PyCFunction_CAST(attach), METH_FASTCALL,
                      "Gives the outputs of an autograd.Function their history."};

}  // namespace

FunctionContext readContext(PyObject* ctx) {
  auto* function = reinterpret_cast<THPFunction*>(ctx);
  FunctionContext found{orNone(function->to_save), orNone(function->saved_for_forward),
                        orNone(function->dirty_tensors), orNone(function->non_differentiable)};
  found.flags = (function->materialize_grads ? Materialize : 0) |
                (function->pure_view ? PureView : 0) |
                (function->materialize_non_diff_grads ? MaterializeAll : 0) |
                (function->clear_saved_tensors_on_access ? ClearOnAccess : 0);
  found.understood = !function->boxed_grads_call &&
                     function->compiled_autograd_backward_state == nullptr &&
                     function->compiled_autograd_symints.empty();
  return found;
}

void clearContext(PyObject* ctx) {
  auto* function = reinterpret_cast<THPFunction*>(ctx);
  Py_CLEAR(function->to_save);
  Py_CLEAR(function->saved_for_forward);
  Py_CLEAR(function->dirty_tensors);
  Py_CLEAR(function->non_differentiable);
}

bool setsUpContext(PyObject* cls) {
  object setup = reinterpret_steal<object>(PyObject_GetAttrString(cls, "setup_context"));
  if (!setup) PyErr_Clear();
  return setup && setup.ptr() != baseSetup();
}

PyObject* applyFunction(PyObject* inputs, FunctionForward& forward) {
  PyObject* apply = applyOf(setsUpContext(forward.cls()));
  if (apply == nullptr) return nullptr;
  Running here{&forward, {}, running};
  running = &here;
  PyObject* result = PyObject_CallObject(apply, inputs);
  running = here.outer;
  return result;
}

bool wantsGradient(PyObject* inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
    PyObject* item = PyTuple_GET_ITEM(inputs, i);
    if (THPVariable_Check(item) && THPVariable_Unpack(item).requires_grad()) return true;
  }
  return false;
}

bool requiresGradient(PyObject* tensor) { return THPVariable_Unpack(tensor).requires_grad(); }
bool isView(PyObject* tensor) { return THPVariable_Unpack(tensor).is_view(); }

bool hasTangent(PyObject* inputs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
    PyObject* item = PyTuple_GET_ITEM(inputs, i);
    if (THPVariable_Check(item) && THPVariable_Unpack(item)._fw_grad(0).defined()) return true;
  }
  return false;
}

PyObject* functionAttacher() {
  static PyObject* attacher = PyCFunction_New(&attachDef, nullptr);
  return attacher;
}

}  // namespace glowplug::aten
