#include <cmath>

#include "aten/op_program_impl.h"
#include "common/check.h"

namespace glowplug::aten {

Values::Values(size_t count) : impl_(std::make_unique<Impl>()) { impl_->slots.resize(count); }
Values::~Values() = default;
Values::Values(Values&&) noexcept = default;

void Values::setTensor(common::ValueId id, PyObject* tensor) {
  impl_->slots[id.index()] = THPVariable_Unpack(tensor);
}

bool Values::has(common::ValueId id) const { return !impl_->slots[id.index()].isNone(); }

PyObject* Values::object(common::ValueId id) const {
  const c10::IValue& value = impl_->slots[id.index()];
  if (value.isNone()) Py_RETURN_NONE;
  if (value.isTensor()) return THPVariable_Wrap(value.toTensor());
  return numberToPython(value);
}

bool Values::sizesAre(common::ValueId id, const std::vector<int64_t>& sizes) const {
  const c10::IValue& value = impl_->slots[id.index()];
  if (!value.isTensor()) return false;
  const c10::TensorImpl& tensor = *value.unsafeToTensorImpl();
  if (tensor.is_nested() || tensor.has_symbolic_sizes_strides()) return false;
  return tensor.sizes() == at::IntArrayRef(sizes);
}

bool Values::scalarIs(common::ValueId id, PyObject* expected) const {
  const c10::IValue& value = impl_->slots[id.index()];
  if (value.isBool()) return PyBool_Check(expected) && value.toBool() == (expected == Py_True);
  if (value.isDouble()) {
    if (!PyFloat_CheckExact(expected)) return false;
    double now = value.toDouble(), then = PyFloat_AS_DOUBLE(expected);
    // Not ==: -0.0 and 0.0 lead to different programs.
    return std::isnan(then) ? std::isnan(now)
                            : now == then && std::signbit(now) == std::signbit(then);
  }
  if (value.isInt() && PyLong_CheckExact(expected)) {
    int overflow = 0;
    long long then = PyLong_AsLongLongAndOverflow(expected, &overflow);
    return overflow == 0 && then == value.toInt();
  }
  if (value.isNone() || value.isTensor()) return false;
  PyObject* now = numberToPython(value);
  bool same = now != nullptr && Py_TYPE(now) == Py_TYPE(expected) &&
              PyObject_RichCompareBool(now, expected, Py_EQ) == 1;
  Py_XDECREF(now);
  PyErr_Clear();
  return same;
}

bool Values::passWarningsOn() {
  WarningBuffer& warnings = impl_->warnings;
  warnings.passOn();
  if (!warnings.due()) return true;
  try {
    warnings.flush(PyErr_Occurred() != nullptr);
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
  return true;
}

TensorTrail& Values::trail() { return impl_->trail; }

void Values::clear(common::ValueId id) { impl_->slots[id.index()] = c10::IValue(); }

}  // namespace glowplug::aten
