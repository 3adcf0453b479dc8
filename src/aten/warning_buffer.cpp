#include "aten/warning_buffer.h"

namespace glowplug::aten {

namespace {

void pass(const c10::Warning& warning, bool inException) {
  torch::PyWarningHandler python;
  if (inException) python.set_in_exception();
  c10::warn(warning);
}

// Torch's warning names the place in torch that read the gradient: Python's own way there.
void readGradient(const at::Tensor& tensor, bool inException) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  if (inException) PyErr_Fetch(&type, &value, &traceback);
  auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  auto gradient = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object.ptr(), "grad"));
  if (!gradient && !inException) throw python_error();
  if (!gradient) PyErr_WriteUnraisable(object.ptr());
  if (inException) PyErr_Restore(type, value, traceback);
}

}  // namespace

void WarningBuffer::flush(bool inException) {
  std::vector<Waiting> warnings = std::move(warnings_);
  warnings_.clear();
  for (const Waiting& next : warnings) {
    if (next.warning)
      pass(*next.warning, inException);
    else
      readGradient(next.gradOf, inException);
  }
}

}  // namespace glowplug::aten
