#include "trace/operations.h"

#include <frameobject.h>

#include "cpython/ref.h"

namespace glowplug::trace {

using cpython::FrameView;
using cpython::Ref;

PyObject* Operations::importName(FrameView frame, PyObject* name, PyObject* fromlist,
                                 PyObject* level) {
  static PyObject* importKey = PyUnicode_InternFromString("__import__");
  Ref import = Ref::borrow(PyDict_GetItemWithError(frame.builtins(), importKey));
  if (!import) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return nullptr;
  }
  PyObject* locals = frame.locals() ? frame.locals() : Py_None;
  PyObject* args[] = {name, frame.globals(), locals, fromlist, level};
  return PyObject_Vectorcall(import.get(), args, 5, nullptr);
}

namespace {

void raiseCannotImport(PyObject* module, PyObject* moduleName, PyObject* name) {
  Ref shown = moduleName ? Ref::borrow(moduleName)
                         : Ref::steal(PyUnicode_FromString("<unknown module name>"));
  if (!shown) return;
  Ref path = Ref::steal(PyModule_GetFilenameObject(module));
  Ref message;
  if (!path || !PyUnicode_Check(path.get())) {
    PyErr_Clear();
    path = Ref();
    message = Ref::steal(PyUnicode_FromFormat("cannot import name %R from %R (unknown location)",
                                              name, shown.get()));
  } else {
    Ref spec = Ref::steal(PyObject_GetAttrString(module, "__spec__"));
    const char* format = _PyModuleSpec_IsInitializing(spec.get())
                             ? "cannot import name %R from partially initialized module %R "
                               "(most likely due to a circular import) (%S)"
                             : "cannot import name %R from %R (%S)";
    message = Ref::steal(PyUnicode_FromFormat(format, name, shown.get(), path.get()));
  }
  PyErr_SetImportError(message.get(), moduleName, path.get());
}

// A module that is being imported in a circle may be in sys.modules before its package has it.
PyObject* fromLoadedModules(PyObject* moduleName, PyObject* name) {
  Ref full = Ref::steal(PyUnicode_FromFormat("%U.%U", moduleName, name));
  return full ? PyImport_GetModule(full.get()) : nullptr;
}

}  // namespace

PyObject* Operations::importFrom(PyObject* module, PyObject* name) {
  static PyObject* nameKey = PyUnicode_InternFromString("__name__");
  PyObject* value = nullptr;
  if (_PyObject_LookupAttr(module, name, &value) != 0) return value;
  Ref moduleName = Ref::steal(PyObject_GetAttr(module, nameKey));
  if (moduleName && !PyUnicode_Check(moduleName.get())) moduleName = Ref();
  if (moduleName) {
    value = fromLoadedModules(moduleName.get(), name);
    if (value || PyErr_Occurred()) return value;
  }
  raiseCannotImport(module, moduleName.get(), name);
  return nullptr;
}

namespace {

void raiseBadStarName(PyObject* module, PyObject* name, bool fromDict) {
  Ref moduleName = Ref::steal(PyObject_GetAttrString(module, "__name__"));
  if (!moduleName) return;
  if (!PyUnicode_Check(moduleName.get()))
    PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s",
                 Py_TYPE(moduleName.get())->tp_name);
  else
    PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", fromDict ? "Key" : "Item",
                 moduleName.get(), fromDict ? "__dict__" : "__all__", Py_TYPE(name)->tp_name);
}

// 1: imported, 0: private, skipped.
int importStarName(PyObject* locals, PyObject* module, PyObject* name, bool fromDict) {
  if (!PyUnicode_Check(name)) {
    raiseBadStarName(module, name, fromDict);
    return -1;
  }
  if (fromDict && PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '_') return 0;
  Ref value = Ref::steal(PyObject_GetAttr(module, name));
  if (!value) return -1;
  int failed = PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value.get())
                                         : PyObject_SetItem(locals, name, value.get());
  return failed ? -1 : 1;
}

// __all__, or the keys of __dict__.
Ref starNames(PyObject* module, bool* fromDict) {
  static PyObject* allKey = PyUnicode_InternFromString("__all__");
  static PyObject* dictKey = PyUnicode_InternFromString("__dict__");
  PyObject* found = nullptr;
  if (_PyObject_LookupAttr(module, allKey, &found) < 0) return Ref();
  if (found) return Ref::steal(found);
  if (_PyObject_LookupAttr(module, dictKey, &found) < 0) return Ref();
  if (!found) {
    PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
    return Ref();
  }
  *fromDict = true;
  Ref dict = Ref::steal(found);
  return Ref::steal(PyMapping_Keys(dict.get()));
}

int importAll(PyObject* locals, PyObject* module) {
  bool fromDict = false;
  Ref names = starNames(module, &fromDict);
  if (!names) return -1;
  for (Py_ssize_t i = 0;; i++) {
    Ref name = Ref::steal(PySequence_GetItem(names.get(), i));
    if (!name) {
      if (!PyErr_ExceptionMatches(PyExc_IndexError)) return -1;
      PyErr_Clear();
      return 0;
    }
    if (importStarName(locals, module, name.get(), fromDict) < 0) return -1;
  }
}

}  // namespace

int Operations::importStar(FrameView frame, PyObject* module) {
  // Only class and module bodies may import *, and their variables live in a mapping.
  PyFrameObject* object = PyEval_GetFrame();
  if (!object || PyFrame_FastToLocalsWithError(object) < 0) return -1;
  if (!frame.locals()) {
    PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
    return -1;
  }
  int result = importAll(frame.locals(), module);
  PyFrame_LocalsToFast(object, 0);
  return result;
}

}  // namespace glowplug::trace
