#pragma once

#include <Python.h>

#include <vector>

// Where objects keep what access paths read. Addresses stay right while the object lives and keeps
// its class; nothing here runs Python code.
namespace glowplug::cpython {

// Where the instance dict stands; attributes kept inline are moved into a dict first, and an object
// that has no dict yet gets one. nullptr when objects of the class have none.
PyObject** instanceDictAddress(PyObject* object);
// Objects of the class never have an instance dict.
bool hasNoInstanceDict(PyTypeObject* type);

// The slot behind a member descriptor of that name (__slots__), or nullptr.
PyObject** slotAddress(PyObject* object, PyObject* name);
// The names of a class's slots, by class from the most derived one on; borrowed.
std::vector<PyObject*> slotNames(PyTypeObject* type);

PyObject** cellAddress(PyObject* cell);
PyObject** proxyTargetAddress(PyObject* mappingProxy);

struct FunctionFields {
  PyObject** code;
  PyObject** defaults;
  PyObject** kwdefaults;
  // For the life of the function:
  PyObject** globals;
  PyObject** builtins;
  PyObject** closure;
};
FunctionFields functionFields(PyObject* function);
// Of a bound method, also one of a builtin; nullptr for anything else. For the life of the method.
PyObject** methodSelfAddress(PyObject* method);
PyObject** methodFunctionAddress(PyObject* method);

Py_ssize_t* dictSizeAddress(PyObject* dict);

struct ListFields {
  Py_ssize_t* size;
  PyObject*** items;
};
ListFields listFields(PyObject* list);
PyObject** tupleItemAddress(PyObject* tuple, Py_ssize_t index);
PyTypeObject** typeAddress(PyObject* object);
Py_ssize_t* sizeAddress(PyObject* object);  // of tuples, lists and other objects of variable size

// object.name where reading runs no Python code; new reference, nullptr (no error set) otherwise.
PyObject* readAttribute(PyObject* object, PyObject* name);

}  // namespace glowplug::cpython
