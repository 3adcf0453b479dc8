#include "cpython/object_fields.h"

#include <structmember.h>

namespace glowplug::cpython {

namespace {

// Objects/descrobject.c of 3.11 (the struct is in no header).
struct MappingProxyObject {
  PyObject_HEAD PyObject* mapping;
};

bool isPythonFunction(PyTypeObject* type, PyObject* name) {
  PyObject* found = _PyType_Lookup(type, name);
  return found && !Py_IS_TYPE(found, &PyWrapperDescr_Type);
}

bool readsWithoutPython(PyTypeObject* type, PyObject* name) {
  static PyObject* getattribute = PyUnicode_InternFromString("__getattribute__");
  static PyObject* getattr = PyUnicode_InternFromString("__getattr__");
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE &&
      (isPythonFunction(type, getattribute) || isPythonFunction(type, getattr)))
    return false;
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (!descriptor || !Py_TYPE(descriptor)->tp_descr_get) return true;
  return !(Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         !PyObject_TypeCheck(descriptor, &PyProperty_Type);
}

}  // namespace

PyObject** instanceDictAddress(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (!slot || *slot) return slot;
  PyObject* made = PyObject_GenericGetDict(object, nullptr);
  if (!made) {
    PyErr_Clear();
    return nullptr;
  }
  Py_DECREF(made);
  slot = _PyObject_GetDictPtr(object);
  return slot && *slot ? slot : nullptr;
}

bool hasNoInstanceDict(PyTypeObject* type) { return type->tp_dictoffset == 0; }

PyObject** slotAddress(PyObject* object, PyObject* name) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (!descriptor || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return nullptr;
  if (!PyObject_TypeCheck(object, PyDescr_TYPE(descriptor))) return nullptr;
  const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  if (member->type != T_OBJECT_EX && member->type != T_OBJECT) return nullptr;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + member->offset);
}

std::vector<PyObject*> slotNames(PyTypeObject* type) {
  std::vector<PyObject*> names;
  for (; type && (type->tp_flags & Py_TPFLAGS_HEAPTYPE); type = type->tp_base) {
    PyObject *name, *member;
    Py_ssize_t position = 0;
    while (PyDict_Next(type->tp_dict, &position, &name, &member))
      if (Py_IS_TYPE(member, &PyMemberDescr_Type)) names.push_back(name);
  }
  return names;
}

PyObject** cellAddress(PyObject* cell) { return &reinterpret_cast<PyCellObject*>(cell)->ob_ref; }

PyObject** proxyTargetAddress(PyObject* mappingProxy) {
  return &reinterpret_cast<MappingProxyObject*>(mappingProxy)->mapping;
}

PyObject** methodSelfAddress(PyObject* method) {
  if (PyMethod_Check(method)) return &reinterpret_cast<PyMethodObject*>(method)->im_self;
  if (PyCFunction_Check(method)) return &reinterpret_cast<PyCFunctionObject*>(method)->m_self;
  return nullptr;
}

PyObject** methodFunctionAddress(PyObject* method) {
  if (!PyMethod_Check(method)) return nullptr;
  return &reinterpret_cast<PyMethodObject*>(method)->im_func;
}

Py_ssize_t* dictSizeAddress(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_used;
}

FunctionFields functionFields(PyObject* function) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  return {&f->func_code,    &f->func_defaults, &f->func_kwdefaults,
          &f->func_globals, &f->func_builtins, &f->func_closure};
}

ListFields listFields(PyObject* list) {
  auto* l = reinterpret_cast<PyListObject*>(list);
  return {&l->ob_base.ob_size, &l->ob_item};
}

PyObject** tupleItemAddress(PyObject* tuple, Py_ssize_t index) {
  return &reinterpret_cast<PyTupleObject*>(tuple)->ob_item[index];
}

PyTypeObject** typeAddress(PyObject* object) { return &object->ob_type; }

Py_ssize_t* sizeAddress(PyObject* object) {
  return &reinterpret_cast<PyVarObject*>(object)->ob_size;
}

PyObject* readAttribute(PyObject* object, PyObject* name) {
  if (!readsWithoutPython(Py_TYPE(object), name)) return nullptr;
  PyObject* value = PyObject_GetAttr(object, name);
  if (!value) PyErr_Clear();
  return value;
}

}  // namespace glowplug::cpython
