#include "bindings/verify.h"

#include "cpython/modules.h"
#include "cpython/ref.h"

namespace glowplug::bindings {

using cpython::Ref;

namespace {

thread_local bool verifying = false;

struct Verifying {
  Verifying() { verifying = true; }
  ~Verifying() { verifying = false; }
};

PyObject* callUnverified(PyObject*, PyObject* arguments) {
  PyObject *entry, *args, *kwargs;
  if (!PyArg_ParseTuple(arguments, "OO!O!:call_unverified", &entry, &PyTuple_Type, &args,
                        &PyDict_Type, &kwargs))
    return nullptr;
  Verifying flag;
  return PyObject_Call(entry, args, kwargs);
}

PyMethodDef methods[] = {
    {"call_unverified", callUnverified, METH_VARARGS,
     "call_unverified(entry, args, kwargs): calls it on this thread without the check."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool isVerifying() { return verifying; }

PyObject* callVerified(PyObject* entry, PyObject* const* args, Py_ssize_t positional,
                       PyObject* kwnames) {
  Ref module = cpython::importModule("glowplug._verify");
  Ref check = module ? Ref::steal(PyObject_GetAttrString(module.get(), "check")) : Ref();
  Ref tuple = check ? Ref::steal(PyTuple_New(positional)) : Ref();
  Ref dict = tuple ? Ref::steal(PyDict_New()) : Ref();
  if (!dict) return nullptr;
  for (Py_ssize_t i = 0; i < positional; i++) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < named; i++)
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(kwnames, i), args[positional + i]) < 0)
      return nullptr;
  return PyObject_CallFunctionObjArgs(check.get(), entry, tuple.get(), dict.get(), nullptr);
}

int addVerifyFunctions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace glowplug::bindings
