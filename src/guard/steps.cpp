#include "guard/steps.h"

#include "aten/op_table.h"
#include "cpython/modules.h"
#include "cpython/object_fields.h"
#include "cpython/version_tags.h"

namespace glowplug::guard {

using cpython::Ref;
using ir::StepKind;

namespace {

PyTypeObject* partialType() {
  static PyTypeObject* type = cpython::moduleType("_functools", "partial");
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
  PyObject* found = cpython::dequeType()->tp_as_sequence->sq_item(deque, index);
  if (!found) PyErr_Clear();
  Py_XDECREF(found);
  return found;
}

PyObject* closureCell(const Node& node, PyObject* function) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* cells = *cpython::functionFields(function).closure;
  return cells && inRange(cells, node.index) ? PyTuple_GET_ITEM(cells, node.index) : nullptr;
}

PyObject** functionPlace(const Node& node, PyObject* function) {
  if (!PyFunction_Check(function)) return nullptr;
  cpython::FunctionFields fields = cpython::functionFields(function);
  return node.step == StepKind::Globals    ? fields.globals
         : node.step == StepKind::Builtins ? fields.builtins
         : node.step == StepKind::Defaults ? fields.defaults
                                           : fields.kwdefaults;
}

PyObject** partialPlace(const Node& node, PyObject* partial) {
  static PyObject* names[] = {PyUnicode_InternFromString("func"),
                              PyUnicode_InternFromString("args"),
                              PyUnicode_InternFromString("keywords")};
  if (!partialType() || !PyObject_TypeCheck(partial, partialType())) return nullptr;
  const int which = node.step == StepKind::PartialFunc   ? 0
                    : node.step == StepKind::PartialArgs ? 1
                                                         : 2;
  return cpython::slotAddress(partial, names[which]);
}

PyObject* contextValue(PyObject* variable, Made& made) {
  if (!PyContextVar_CheckExact(variable)) return nullptr;
  PyObject* value = nullptr;
  if (PyContextVar_Get(variable, nullptr, &value) != 0) PyErr_Clear();
  return keep(made, value);
}

PyObject* readGrad(PyObject* tensor, Made& made) {
  if (!aten::isPlainTensor(tensor)) return nullptr;
  return keep(made, aten::gradientOf(tensor));
}

}  // namespace

bool isDeque(PyObject* object) {
  return cpython::dequeType() && PyObject_TypeCheck(object, cpython::dequeType());
}

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
    case StepKind::Result:
      return call.late ? call.late->result(common::ValueId(static_cast<size_t>(root.index)))
                       : nullptr;
    case StepKind::Built:
      return call.late ? call.late->built(common::RecipeId(static_cast<size_t>(root.index)))
                       : nullptr;
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
    case StepKind::Globals:
    case StepKind::Builtins:
    case StepKind::Defaults:
    case StepKind::Kwdefaults:
      return functionPlace(node, parent);
    case StepKind::MethodSelf:
      return cpython::methodSelfAddress(parent);
    case StepKind::MethodFunc:
      return cpython::methodFunctionAddress(parent);
    case StepKind::PartialFunc:
    case StepKind::PartialArgs:
    case StepKind::PartialKwargs:
      return partialPlace(node, parent);
    case StepKind::ProxyTarget:
      return Py_IS_TYPE(parent, &PyDictProxy_Type) ? cpython::proxyTargetAddress(parent) : nullptr;
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
    case StepKind::Closure:
      return closureCell(node, parent);
    case StepKind::Referent:
      return PyWeakref_CheckRef(parent) ? PyWeakref_GET_OBJECT(parent) : nullptr;
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
