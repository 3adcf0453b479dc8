#include "trace/well_known.h"

#include <cstring>
#include <string>
#include <string_view>

#include "cpython/modules.h"
#include "cpython/ref.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

// The slots that Python gives to classes with __getattribute__ / __getattr__ / __setattr__ written
// in Python are not exported; classes made for the purpose show their addresses.
struct PythonSlots {
  getattrofunc getattr_hook = nullptr;
  setattrofunc setattr = nullptr;
};

const PythonSlots& pythonSlots() {
  static const PythonSlots slots = [] {
    PythonSlots result;
    Ref globals = Ref::steal(PyDict_New());
    const char* program =
        "class A:\n"
        "  def __getattr__(self, name): raise AttributeError(name)\n"
        "  def __setattr__(self, name, value): pass\n";
    Ref ran = Ref::steal(PyRun_String(program, Py_file_input, globals.get(), globals.get()));
    PyObject* type = ran ? PyDict_GetItemString(globals.get(), "A") : nullptr;
    if (type) {
      result.getattr_hook = reinterpret_cast<PyTypeObject*>(type)->tp_getattro;
      result.setattr = reinterpret_cast<PyTypeObject*>(type)->tp_setattro;
    } else {
      PyErr_Clear();
    }
    return result;
  }();
  return slots;
}

// The class has no override of its own of object's (or a module's) way of access.
bool isInherited(PyTypeObject* type, PyObject* text) {
  PyObject* found = _PyType_Lookup(type, text);
  return found == _PyType_Lookup(&PyBaseObject_Type, text) ||
         found == _PyType_Lookup(&PyModule_Type, text);
}

}  // namespace

const WellKnown& wellKnown() {
  static const WellKnown* known = [] {
    auto* made = new WellKnown();
    pythonSlots();  // runs Python code, which must not happen inside a recording
    made->dtype = cpython::moduleType("torch", "dtype");
    made->device = cpython::moduleType("torch", "device");
    made->layout = cpython::moduleType("torch", "layout");
    made->memoryFormat = cpython::moduleType("torch", "memory_format");
    made->qscheme = cpython::moduleType("torch", "qscheme");
    made->torchSize = cpython::moduleType("torch", "Size");
    made->enumType = cpython::moduleType("enum", "Enum");
    made->partial = cpython::moduleType("functools", "partial");
    made->orderedDict = cpython::moduleType("collections", "OrderedDict");
    made->defaultDict = cpython::moduleType("collections", "defaultdict");
    made->deque = cpython::moduleType("collections", "deque");
    made->mappingProxy = cpython::moduleType("types", "MappingProxyType");
    made->emptyTuple = PyTuple_New(0);
    for (auto [module, name] : {std::pair{"re", "Pattern"},
                                {"torch._ops", "OpOverload"},
                                {"torch._ops", "OpOverloadPacket"},
                                {"types", "UnionType"},
                                {"types", "MethodWrapperType"},
                                {"functools", "_lru_cache_wrapper"},
                                {"contextvars", "ContextVar"},
                                {"inspect", "Parameter"},
                                {"inspect", "_ParameterKind"}})
      if (PyTypeObject* type = cpython::moduleType(module, name)) made->pinnable[type] = true;
    made->pinnable.erase(cpython::moduleType("inspect", "Parameter"));
    return made;
  }();
  return *known;
}

bool WellKnown::isPinnableType(PyTypeObject* type) const {
  auto it = pinnable.find(type);
  if (it != pinnable.end()) return it->second;
  // Functions and methods of extensions that Cython made are functions like others.
  bool result = (enumType && PyType_IsSubtype(type, enumType)) ||
                std::string_view(type->tp_name).ends_with(".cython_function_or_method");
  if (!result) {
    Ref module =
        Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__"));
    if (!module) PyErr_Clear();
    result = module && PyUnicode_Check(module.get()) &&
             PyUnicode_CompareWithASCIIString(module.get(), "typing") == 0;
  }
  // One that may be freed is not remembered: another class may come to lie at its address.
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) return result;
  return pinnable[type] = result;
}

bool WellKnown::isCapsuleLike(PyTypeObject* type) const {
  return type == &PyCapsule_Type ||
         std::strstr(type->tp_name, "pybind11_detail_function_record") != nullptr ||
         std::strstr(type->tp_name, "_VariableFunctions") != nullptr;
}

bool hasGenericGetAttr(PyTypeObject* type) {
  if (type->tp_getattro == PyObject_GenericGetAttr ||
      type->tp_getattro == PyModule_Type.tp_getattro)
    return true;
  // slot_tp_getattr_hook, or slot_tp_getattro once it found that there is no __getattr__.
  static PyObject* name = PyUnicode_InternFromString("__getattribute__");
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) return isInherited(type, name);
  return type->tp_getattro == pythonSlots().getattr_hook;
}

bool hasGenericSetAttr(PyTypeObject* type) {
  if (type->tp_setattro == PyObject_GenericSetAttr) return true;
  static PyObject* set = PyUnicode_InternFromString("__setattr__");
  static PyObject* del = PyUnicode_InternFromString("__delattr__");
  if (type->tp_setattro == pythonSlots().setattr)
    return isInherited(type, set) && isInherited(type, del);
  return false;
}

}  // namespace glowplug::trace
