#include "guard/steps.h"

#include "aten/op_table.h"
#include "cpython/object_fields.h"
#include "cpython/version_tags.h"

namespace glowplug::guard {

using cpython::Ref;
using ir::StepKind;

namespace {

PyTypeObject* importType(const char* module, const char* name) {
  Ref found = Ref::steal(PyImport_ImportModule(module));
  PyObject* type = found ? PyObject_GetAttrString(found.get(), name) : nullptr;
  if (!type || !PyType_Check(type)) {
    PyErr_Clear();
    Py_XDECREF(type);
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(type);  // kept for the life of the process
}

PyTypeObject* dequeType() {
  static PyTypeObject* type = importType("_collections", "deque");
  return type;
}

PyTypeObject* partialType() {
  static PyTypeObject* type = importType("_functools", "partial");
  return type;
}

PyObject* keep(Made& made, PyObject* object) {
  if (!object) {
    PyErr_Clear();
    return nullptr;
  }
  made.push_back(Ref::steal(object));
  return object;
}

PyObject* keywordArgument(const Call& call, PyObject* name) {
  if (!call.kwnames) return nullptr;
  const Py_ssize_t count = PyTuple_GET_SIZE(call.kwnames);
  for (Py_ssize_t i = 0; i < count; i++)
    if (PyTuple_GET_ITEM(call.kwnames, i) == name) return call.args[call.positional + i];
  for (Py_ssize_t i = 0; i < count; i++)
    if (PyUnicode_Compare(PyTuple_GET_ITEM(call.kwnames, i), name) == 0)
      return call.args[call.positional + i];
  return nullptr;
}

PyObject* item(PyObject* dict, const Node& node) {
  PyObject* key = node.keyObject();
  if (!key || !PyDict_Check(dict)) return nullptr;
  PyObject* value = nullptr;
  return cpython::dictFind(dict, key, node.hash, &value) == cpython::Found::Yes ? value : nullptr;
}

bool inRange(PyObject* sequence, int64_t index) { return index >= 0 && index < Py_SIZE(sequence); }

PyObject* dequeItem(PyObject* deque, int64_t index) {
  if (!isDeque(deque) || !inRange(deque, index)) return nullptr;
  // Through the base class's slot: a subclass may have a __getitem__ of its own. The deque holds
  // it.
  PyObject* found = dequeType()->tp_as_sequence->sq_item(deque, index);
  if (!found) PyErr_Clear();
  Py_XDECREF(found);
  return found;
}

PyObject* functionPart(const Node& node, PyObject* function) {
  if (!PyFunction_Check(function)) return nullptr;
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  switch (node.step) {
    case StepKind::Globals:
      return f->func_globals;
    case StepKind::Builtins:
      return f->func_builtins;
    case StepKind::Defaults:
      return f->func_defaults;
    case StepKind::Kwdefaults:
      return f->func_kwdefaults;
    default:
      return f->func_closure && inRange(f->func_closure, node.index)
                 ? PyTuple_GET_ITEM(f->func_closure, node.index)
                 : nullptr;
  }
}

PyObject* methodPart(const Node& node, PyObject* method) {
  if (PyMethod_Check(method))
    return node.step == StepKind::MethodSelf ? PyMethod_GET_SELF(method)
                                             : PyMethod_GET_FUNCTION(method);
  if (node.step == StepKind::MethodSelf && PyCFunction_Check(method))
    return PyCFunction_GET_SELF(method);
  return nullptr;
}

PyObject* contextValue(PyObject* variable, Made& made) {
  if (!PyContextVar_CheckExact(variable)) return nullptr;
  PyObject* value = nullptr;
  if (PyContextVar_Get(variable, nullptr, &value) != 0) PyErr_Clear();
  return keep(made, value);
}

PyObject* readGrad(PyObject* tensor, Made& made) {
  if (!aten::isPlainTensor(tensor)) return nullptr;
  static PyObject* grad = PyUnicode_InternFromString("grad");
  return keep(made, PyObject_GetAttr(tensor, grad));
}

}  // namespace

bool isDeque(PyObject* object) { return dequeType() && PyObject_TypeCheck(object, dequeType()); }

PyObject* fetchRoot(const Node& root, const Call& call) {
  switch (root.step) {
    case StepKind::Callee:
      return call.callee;
    case StepKind::Arg:
      return root.index >= 0 && static_cast<size_t>(root.index) < call.positional
                 ? call.args[root.index]
                 : nullptr;
    case StepKind::Kwarg:
      return keywordArgument(call, root.key.get());
    default:
      return root.pinned.get();
  }
}

PyObject** placeOf(const Node& node, PyObject* parent) {
  switch (node.step) {
    case StepKind::InstanceDict:
      return cpython::instanceDictAddress(parent);
    case StepKind::SlotAttr:
      return cpython::slotAddress(parent, node.key.get());
    case StepKind::CellContents:
      return PyCell_Check(parent) ? cpython::cellAddress(parent) : nullptr;
    case StepKind::Defaults:
      return PyFunction_Check(parent) ? cpython::functionFields(parent).defaults : nullptr;
    case StepKind::Kwdefaults:
      return PyFunction_Check(parent) ? cpython::functionFields(parent).kwdefaults : nullptr;
    case StepKind::PartialFunc:
    case StepKind::PartialArgs:
    case StepKind::PartialKwargs: {
      static PyObject* names[] = {PyUnicode_InternFromString("func"),
                                  PyUnicode_InternFromString("args"),
                                  PyUnicode_InternFromString("keywords")};
      if (!partialType() || !PyObject_TypeCheck(parent, partialType())) return nullptr;
      const int which = node.step == StepKind::PartialFunc   ? 0
                        : node.step == StepKind::PartialArgs ? 1
                                                             : 2;
      return cpython::slotAddress(parent, names[which]);
    }
    default:
      return nullptr;
  }
}

PyObject* fetchStep(const Node& node, PyObject* parent, Made& made) {
  switch (node.step) {
    case StepKind::DictItem:
      return item(parent, node);
    case StepKind::ListItem:
      return PyList_Check(parent) && inRange(parent, node.index)
                 ? PyList_GET_ITEM(parent, node.index)
                 : nullptr;
    case StepKind::TupleItem:
      return PyTuple_Check(parent) && inRange(parent, node.index)
                 ? PyTuple_GET_ITEM(parent, node.index)
                 : nullptr;
    case StepKind::DequeItem:
      return dequeItem(parent, node.index);
    case StepKind::TypeAttr:
      return PyType_Check(parent)
                 ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(parent), node.key.get())
                 : nullptr;
    case StepKind::Globals:
    case StepKind::Builtins:
    case StepKind::Closure:
      return functionPart(node, parent);
    case StepKind::MethodSelf:
    case StepKind::MethodFunc:
      return methodPart(node, parent);
    case StepKind::ProxyTarget:
      return Py_IS_TYPE(parent, &PyDictProxy_Type) ? cpython::proxyTarget(parent) : nullptr;
    case StepKind::TensorGrad:
      return readGrad(parent, made);
    case StepKind::ContextValue:
      return contextValue(parent, made);
    case StepKind::GetAttr:
      return keep(made, cpython::readAttribute(parent, node.key.get()));
    default: {
      PyObject** place = placeOf(node, parent);
      return place ? *place : nullptr;
    }
  }
}

}  // namespace glowplug::guard
