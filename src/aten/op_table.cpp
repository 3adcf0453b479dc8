#include <fmt/format.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "aten/op_table_impl.h"
#include "common/check.h"

namespace glowplug::aten {

OpTable::OpTable() : impl_(std::make_unique<Impl>()) {}
OpTable::~OpTable() = default;

common::MetaId OpTable::addMeta(PyObject* tensor) {
  return impl_->addMeta(THPVariable_Unpack(tensor), Py_TYPE(tensor));
}

const TensorMeta* OpTable::meta(common::MetaId id) const {
  return impl_->metas.at(id.index()).get();
}

std::string OpTable::metaText(common::MetaId id) const { return meta(id)->text(); }

std::string OpTable::ivalueText(common::IValueId id) const {
  return textOf(impl_->constants.at(id.index()));
}

PyObject* OpTable::toPython(common::IValueId id) const {
  return torch::jit::toPyObject(impl_->constants.at(id.index())).release().ptr();
}

bool OpTable::isOwn(common::OperatorId id) const {
  return impl_->operators.at(id.index()).operator_name().name.rfind("glowplug::", 0) == 0;
}

std::string OpTable::operatorName(common::OperatorId id) const {
  const c10::OperatorName& name = impl_->operators.at(id.index()).operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

common::OperatorId OpTable::Impl::addOperator(const c10::OperatorHandle& op) {
  auto [position, isNew] = operatorIds.try_emplace(op, common::OperatorId(operators.size()));
  if (isNew) operators.push_back(op);
  return position->second;
}

common::IValueId OpTable::Impl::addConstant(c10::IValue value) {
  // Small immutable constants are shared, so that printed traces stay readable.
  bool small = value.isInt() || value.isBool();
  std::string text = small ? textOf(value) : std::string();
  if (small) {
    auto found = smallConstants.find(text);
    if (found != smallConstants.end()) return found->second;
  }
  common::IValueId id(constants.size());
  constants.push_back(std::move(value));
  if (small) smallConstants.emplace(std::move(text), id);
  return id;
}

common::MetaId OpTable::Impl::addMeta(const at::Tensor& tensor, PyTypeObject* type) {
  auto meta = std::make_unique<TensorMeta>(tensor, type);
  auto [position, isNew] = metaIds.try_emplace(meta->key(), common::MetaId(metas.size()));
  if (isNew) metas.push_back(std::move(meta));
  return position->second;
}

std::string textOf(const c10::IValue& value) {
  c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return fmt::format("{}", value.toInt());
  if (value.isDouble()) {
    // As Python's repr: the shortest text that reads back as the same double, and not as an int.
    std::string text = fmt::format("{}", value.toDouble());
    return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
  }
  if (value.isString()) return fmt::format("\"{}\"", value.toStringRef());
  if (value.isDevice()) return fmt::format("device({})", value.toDevice().str());
  if (value.isGenerator()) return "generator";
  if (value.isTensor() && value.toTensor().dim() == 0 && value.toTensor().is_cpu()) {
    const at::Tensor& tensor = value.toTensor();
    bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    std::string number = textOf(c10::IValue(tensor.item()));
    return fmt::format("{}({} {})", wrapped ? "number" : "tensor", c10::str(tensor.scalar_type()),
                       number);
  }
  if (value.isTensor()) {
    return "tensor(" +
           TensorMeta(value.toTensor(), reinterpret_cast<PyTypeObject*>(THPVariableClass)).text() +
           ")";
  }
  if (value.isList()) {
    std::string text = "[";
    for (const c10::IValue& item : value.toListRef()) {
      text += (text.size() > 1 ? ", " : "") + textOf(item);
    }
    return text + "]";
  }
  return c10::str(value);
}

PyObject* numberToPython(const c10::IValue& value) {
  if (value.isBool()) return PyBool_FromLong(value.toBool());
  if (value.isInt()) return PyLong_FromLongLong(value.toInt());
  if (value.isDouble()) return PyFloat_FromDouble(value.toDouble());
  if (value.isComplexDouble()) {
    c10::complex<double> number = value.toComplexDouble();
    return PyComplex_FromDoubles(number.real(), number.imag());
  }
  if (value.isUnsigned()) return PyLong_FromUnsignedLongLong(value.toUInt());
  GP_CHECK(false, "not a number: " + value.tagKind());
}

}  // namespace glowplug::aten
