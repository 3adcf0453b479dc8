#include "cpython/modules.h"

namespace glowplug::cpython {

Ref importModule(const char* name) {
  Ref text = Ref::steal(PyUnicode_InternFromString(name));
  if (!text) return Ref();
  Ref loaded = Ref::steal(PyImport_GetModule(text.get()));
  if (loaded || PyErr_Occurred()) return loaded;
  // With a list of names the import gives the innermost module, not the outermost package.
  Ref names = Ref::steal(Py_BuildValue("(s)", "*"));
  if (!names) return Ref();
  return Ref::steal(PyImport_ImportModuleLevelObject(text.get(), nullptr, nullptr, names.get(), 0));
}

PyObject* moduleAttribute(const char* module, const char* name) {
  Ref owner = importModule(module);
  PyObject* found = owner ? PyObject_GetAttrString(owner.get(), name) : nullptr;
  if (!found) PyErr_Clear();
  return found;
}

PyTypeObject* moduleType(const char* module, const char* name) {
  PyObject* found = moduleAttribute(module, name);
  if (found && PyType_Check(found)) return reinterpret_cast<PyTypeObject*>(found);
  Py_XDECREF(found);
  return nullptr;
}

PyTypeObject* dequeType() {
  static PyTypeObject* type = moduleType("_collections", "deque");
  return type;
}

}  // namespace glowplug::cpython
