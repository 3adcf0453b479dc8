#include "cpython/pycore.h"

#include "cpython/special_lookup.h"

#include <opcode.h>

#include <array>

#include "cpython/ref.h"

namespace glowplug::cpython {

PyObject* lookUpSpecial(PyObject* object, PyObject* name) {
  return _PyObject_LookupSpecial(object, name);
}

namespace {

// The helper behind PREP_RERAISE_STAR is not exported, so a function is made that has the
// instruction.
PyObject* makeReraiseFunction() {
  constexpr std::array<unsigned char, 10> kCode = {
      RESUME, 0, LOAD_FAST, 0, LOAD_FAST, 1, PREP_RERAISE_STAR, 0, RETURN_VALUE, 0};
  Ref globals = Ref::steal(PyDict_New());
  if (!globals) return nullptr;
  Ref lambda = Ref::steal(PyRun_String("lambda original, exceptions: [original, exceptions]",
                                       Py_eval_input, globals.get(), globals.get()));
  if (!lambda) return nullptr;
  Ref code = Ref::borrow(PyFunction_GetCode(lambda.get()));
  Ref bytes = Ref::steal(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(kCode.data()),
                                                   static_cast<Py_ssize_t>(kCode.size())));
  Ref replace = Ref::steal(PyObject_GetAttrString(code.get(), "replace"));
  Ref arguments = Ref::steal(PyTuple_New(0));
  if (!bytes || !replace || !arguments) return nullptr;
  Ref keywords = Ref::steal(Py_BuildValue("{sO}", "co_code", bytes.get()));
  if (!keywords) return nullptr;
  Ref changed = Ref::steal(PyObject_Call(replace.get(), arguments.get(), keywords.get()));
  return changed ? PyFunction_New(changed.get(), globals.get()) : nullptr;
}

}  // namespace

PyObject* prepareReraiseStar(PyObject* original, PyObject* exceptions) {
  static PyObject* function = nullptr;
  if (!function) function = makeReraiseFunction();
  if (!function) return nullptr;
  return PyObject_CallFunctionObjArgs(function, original, exceptions, nullptr);
}

}  // namespace glowplug::cpython
