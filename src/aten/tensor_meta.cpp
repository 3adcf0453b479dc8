#include <fmt/format.h>
#include <fmt/ranges.h>

#include "aten/op_table_impl.h"

namespace glowplug::aten {

namespace {

const char* dtypeName(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return "f32";
    case c10::ScalarType::Double:
      return "f64";
    case c10::ScalarType::Half:
      return "f16";
    case c10::ScalarType::BFloat16:
      return "bf16";
    case c10::ScalarType::Byte:
      return "u8";
    case c10::ScalarType::Char:
      return "i8";
    case c10::ScalarType::Short:
      return "i16";
    case c10::ScalarType::Int:
      return "i32";
    case c10::ScalarType::Long:
      return "i64";
    case c10::ScalarType::UInt16:
      return "u16";
    case c10::ScalarType::UInt32:
      return "u32";
    case c10::ScalarType::UInt64:
      return "u64";
    case c10::ScalarType::Bool:
      return "bool";
    case c10::ScalarType::ComplexFloat:
      return "c64";
    case c10::ScalarType::ComplexDouble:
      return "c128";
    default:
      return c10::toString(type);
  }
}

std::string layoutName(c10::Layout layout) { return fmt::format("{}", c10::str(layout)); }

bool sameSpan(at::IntArrayRef now, const c10::SmallVector<int64_t, 5>& then) {
  const size_t count = then.size();
  if (now.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (now[i] != then[i]) return false;
  }
  return true;
}

// Keys of tensors whose sizes, strides or device may be computed by someone else's code.
bool isCustom(const at::TensorImpl& impl) {
  return impl.is_python_dispatch() || impl.is_nested() ||
         impl.key_set().has(c10::DispatchKey::FuncTorchBatched) ||
         impl.key_set().has(c10::DispatchKey::FuncTorchGradWrapper) ||
         impl.key_set().has(c10::DispatchKey::Functionalize) || impl.has_symbolic_sizes_strides();
}

std::string typeName(PyTypeObject* type) {
  return type == reinterpret_cast<PyTypeObject*>(THPVariableClass) ? "Tensor" : type->tp_name;
}

}  // namespace

TensorMeta::TensorMeta(const at::Tensor& tensor, PyTypeObject* type)
    : type_(type),
      keys_(tensor.key_set().raw_repr()),
      dtype_(tensor.dtype()),
      device_(tensor.device()),
      layout_(tensor.layout()),
      requiresGrad_(tensor.requires_grad()) {
  if (!THPVariable_CheckTypeExact(type)) {
    ownedType_ = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(type));
  }
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  custom_ = isCustom(impl);
  strided_ = layout_ == c10::Layout::Strided && !impl.is_nested();
  sized_ = !impl.is_nested();
  try {
    if (sized_) sizes_.append(impl.sizes().begin(), impl.sizes().end());
  } catch (const std::exception&) {
    sized_ = strided_ = false;
  }
  try {
    if (strided_) strides_.append(impl.strides().begin(), impl.strides().end());
  } catch (const std::exception&) {
    strided_ = false;
  }
}

at::Tensor TensorMeta::standIn() const {
  c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  auto options = at::TensorOptions().dtype(dtype_).device(device_);
  at::Tensor made = strided_ ? at::empty_strided(sizes_, strides_, options)
                             : at::empty(sizes_, options.layout(layout_));
  if (requiresGrad_) made.set_requires_grad(true);
  return made;
}

bool TensorMeta::matches(PyObject* object) const {
  if (Py_TYPE(object) != type_) return false;
  return matchesTensor(*THPVariable_Unpack(object).unsafeGetTensorImpl());
}

bool TensorMeta::matchesTensor(const at::TensorImpl& impl) const {
  if (impl.key_set().raw_repr() != keys_ || impl.dtype() != dtype_) return false;
  if (custom_ || impl.has_symbolic_sizes_strides()) return custom_ && matchesCustom(impl);
  if (impl.device() != device_) return false;
  if (!sameSpan(impl.sizes(), sizes_)) return false;
  if (strided_ ? !sameSpan(impl.strides(), strides_) : impl.layout() != layout_) return false;
  return impl.requires_grad() == requiresGrad_;
}

bool TensorMeta::matchesCustom(const at::TensorImpl& impl) const {
  try {
    if (impl.device() != device_ || impl.layout() != layout_) return false;
    if (impl.is_nested() || !sized_) return false;  // nothing that could be compared pins it
    if (!sameSpan(impl.sizes(), sizes_)) return false;
    if (strided_ && !sameSpan(impl.strides(), strides_)) return false;
    return impl.requires_grad() == requiresGrad_;
  } catch (const std::exception&) {
    return false;
  }
}

std::string TensorMeta::difference(PyObject* object) const {
  if (!isTensor(object)) return fmt::format("not a tensor but {}", Py_TYPE(object)->tp_name);
  if (matches(object)) return "";
  if (Py_TYPE(object) != type_) {
    return fmt::format("type: {}, was {}", typeName(Py_TYPE(object)), typeName(type_));
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!tensor.defined()) return "undefined tensor";
  TensorMeta now(tensor, type_);
  if (now.dtype_ != dtype_) {
    return fmt::format("dtype: {}, was {}", dtypeName(now.dtype_.toScalarType()),
                       dtypeName(dtype_.toScalarType()));
  }
  if (now.device_ != device_) {
    return fmt::format("device: {}, was {}", now.device_.str(), device_.str());
  }
  if (now.layout_ != layout_) {
    return fmt::format("layout: {}, was {}", layoutName(now.layout_), layoutName(layout_));
  }
  if (now.sizes_.size() != sizes_.size()) {
    return fmt::format("number of dimensions: {}, was {}", now.sizes_.size(), sizes_.size());
  }
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (now.sizes_[i] != sizes_[i]) {
      return fmt::format("size of dim {}: {}, was {}", i, now.sizes_[i], sizes_[i]);
    }
  }
  for (size_t i = 0; i < strides_.size() && i < now.strides_.size(); ++i) {
    if (now.strides_[i] != strides_[i]) {
      return fmt::format("stride of dim {}: {}, was {}", i, now.strides_[i], strides_[i]);
    }
  }
  if (now.requiresGrad_ != requiresGrad_) {
    return fmt::format("requires_grad: {}, was {}", now.requiresGrad_, requiresGrad_);
  }
  if (now.keys_ != keys_) {
    return fmt::format("dispatch keys: {}, was {}", c10::toString(tensor.key_set()),
                       c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys_)));
  }
  return "cannot be compared";
}

std::string TensorMeta::text() const {
  std::string text = fmt::format("{}[{}]", dtypeName(dtype_.toScalarType()),
                                 sized_ ? fmt::format("{}", fmt::join(sizes_, ",")) : "?");
  if (strided_) text += fmt::format("{{{}}}", fmt::join(strides_, ","));
  text += " " + device_.str();
  if (layout_ != c10::Layout::Strided) text += " " + layoutName(layout_);
  if (requiresGrad_) text += " grad";
  c10::DispatchKeySet keys(c10::DispatchKeySet::RAW, keys_);
  if (keys.has(c10::DispatchKey::Conjugate)) text += " conj";
  if (keys.has(c10::DispatchKey::Negative)) text += " neg";
  if (!keys.has(c10::DispatchKey::ADInplaceOrView)) text += " inference";
  if (type_ != reinterpret_cast<PyTypeObject*>(THPVariableClass)) text += " " + typeName(type_);
  return text;
}

std::string TensorMeta::key() const {
  return fmt::format("{} {:x} {} {}", text(), keys_, static_cast<const void*>(type_), sized_);
}

bool isTensor(PyObject* object) {
  if (THPVariableClass == nullptr) return false;
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

PyObject* gradientOf(PyObject* tensor) {
  return THPVariable_Wrap(THPVariable_Unpack(tensor).unsafeGetTensorImpl()->grad());
}

bool isPlainTensor(PyObject* object) {
  return THPVariableClass != nullptr && THPVariable_CheckExact(object);
}

bool metaMatches(const TensorMeta& meta, PyObject* object) { return meta.matches(object); }

std::string metaDifference(const TensorMeta& meta, PyObject* object) {
  return meta.difference(object);
}

}  // namespace glowplug::aten
