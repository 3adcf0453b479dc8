#include "aten/saved_hooks.h"

#include <cstring>

#include "aten/torch.h"

namespace glowplug::aten {

namespace {

PyObject* autogradFunction(const char* name) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._C._autograd");
  PyObject* found = module != nullptr ? PyObject_GetAttrString(module, name) : nullptr;
  if (found == nullptr) PyErr_Clear();
  return found;
}

}  // namespace

PyObject* savedHooksPush() {
  static PyObject* push = autogradFunction("_push_saved_tensors_default_hooks");
  return push;
}

PyObject* savedHooksPop() {
  static PyObject* pop = autogradFunction("_pop_saved_tensors_default_hooks");
  return pop;
}

size_t savedHooksDepth() { return at::SavedTensorDefaultHooks::get_tls_state().stack.size(); }

bool keepsToItself(PyObject* pack) {
  if (!PyFunction_Check(pack)) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(pack);
  auto is = [](PyObject* text, const char* expected) {
    return text != nullptr && PyUnicode_Check(text) &&
           PyUnicode_CompareWithASCIIString(text, expected) == 0;
  };
  PyObject* name = reinterpret_cast<PyCodeObject*>(function->func_code)->co_qualname;
  return (is(function->func_module, "torch.utils.checkpoint") &&
          is(name, "_checkpoint_hook.__init__.<locals>.pack_hook")) ||
         (is(function->func_module, "torch.autograd.graph") &&
          is(name, "save_on_cpu.__init__.<locals>.pack_to_cpu"));
}

}  // namespace glowplug::aten
