#pragma once

// Private to aten/: what the ids of an OpTable stand for, in torch's own types.
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/op_table.h"
#include "aten/torch.h"

namespace glowplug::aten {

class TensorMeta {
 public:
  // `type` is the Python type that the tensor has, or will have when Python sees it.
  TensorMeta(const at::Tensor& tensor, PyTypeObject* type);

  bool matches(PyObject* object) const;
  bool matchesTensor(const at::TensorImpl& impl) const;
  std::string difference(PyObject* object) const;
  std::string text() const;
  // Text that two metas share exactly when they guard the same.
  std::string key() const;
  bool hasSizes() const { return sized_; }
  // A tensor of this metadata with undefined contents.
  at::Tensor standIn() const;

 private:
  bool matchesCustom(const at::TensorImpl& impl) const;

  PyTypeObject* type_;
  py::object ownedType_;  // a subclass that may die; torch.Tensor and Parameter need no reference
  uint64_t keys_;
  caffe2::TypeMeta dtype_;
  c10::Device device_;
  c10::Layout layout_;
  bool requiresGrad_;
  bool sized_ = true;    // sizes can be asked for (not so for nested tensors)
  bool strided_ = true;  // strides mean something
  bool custom_ = false;  // sizes or device come from virtual calls, which may throw
  c10::SmallVector<int64_t, 5> sizes_, strides_;
};

struct OpTable::Impl {
  std::vector<c10::OperatorHandle> operators;
  std::unordered_map<c10::OperatorHandle, common::OperatorId> operatorIds;
  std::vector<c10::IValue> constants;
  std::unordered_map<std::string, common::IValueId> smallConstants;
  std::vector<std::unique_ptr<TensorMeta>> metas;
  std::unordered_map<std::string, common::MetaId> metaIds;

  common::OperatorId addOperator(const c10::OperatorHandle& op);
  common::IValueId addConstant(c10::IValue value);
  common::MetaId addMeta(const at::Tensor& tensor, PyTypeObject* type);
};

std::string textOf(const c10::IValue& value);
// New reference; value is a number or bool.
PyObject* numberToPython(const c10::IValue& value);

}  // namespace glowplug::aten
