#include <algorithm>
#include <bit>
#include <cstring>

#include "aten/op_table_impl.h"
#include "aten/op_traits.h"

namespace glowplug::aten {

namespace {

// By bits: -0.0 is not 0.0, and a NaN is itself.
bool sameTensor(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  if (TensorMeta(a, type).key() != TensorMeta(b, type).key()) return false;
  bool wrapped = a.unsafeGetTensorImpl()->is_wrapped_number();
  if (wrapped != b.unsafeGetTensorImpl()->is_wrapped_number()) return false;
  if (a.is_same(b)) return true;
  if (!a.is_cpu() || a.layout() != c10::Layout::Strided || a.is_quantized()) return false;
  at::Tensor left = a.resolve_conj().resolve_neg().contiguous();
  at::Tensor right = b.resolve_conj().resolve_neg().contiguous();
  return left.nbytes() == right.nbytes() &&
         (left.nbytes() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

bool sameValue(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) return false;
  if (a.isTensor()) return sameTensor(a.toTensor(), b.toTensor());
  if (a.isDouble())
    return std::bit_cast<uint64_t>(a.toDouble()) == std::bit_cast<uint64_t>(b.toDouble());
  if (a.isList()) {
    auto left = a.toListRef(), right = b.toListRef();
    return *a.type() == *b.type() &&
           std::equal(left.begin(), left.end(), right.begin(), right.end(), sameValue);
  }
  bool simple =
      a.isNone() || a.isBool() || a.isInt() || a.isString() || a.isDevice() || a.isComplexDouble();
  return simple ? textOf(a) == textOf(b) : a.is(b);
}

}  // namespace

bool OpTable::sameConstant(const OpTable& a, common::IValueId idInA, const OpTable& b,
                           common::IValueId idInB) {
  c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  return sameValue(a.impl_->constants.at(idInA.index()), b.impl_->constants.at(idInB.index()));
}

bool OpTable::mayWrite(common::OperatorId id) const {
  return OpTraits(impl_->operators.at(id.index())).mayWrite();
}

bool OpTraits::mayWrite() const {
  return hiddenWrites_ || conservativeAliases_ ||
         std::find(writes_.begin(), writes_.end(), true) != writes_.end();
}

}  // namespace glowplug::aten
