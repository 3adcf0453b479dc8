#pragma once

// Private to aten/: which tensors a recording knows.
#include <unordered_map>
#include <vector>

#include "aten/torch.h"
#include "common/ids.h"

namespace glowplug::aten {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Maps tensors to values, weakly: an entry keeps the address of a tensor from being used again, but
// neither its memory nor its Python object.
class ValueTracker {
 public:
  struct Entry {
    WeakTensor tensor;
    WeakStorage storage;
    common::ValueId value;
    bool explicitGrad = false;  // as set by requires_grad_(), which no operator tells of
    bool hasHistory = false;    // autograd knows how it was computed
    bool outside = false;       // the tensor itself, and not only its memory, can be seen by others
  };

  Entry* find(const at::Tensor& tensor);
  const Entry* find(const at::Tensor& tensor) const;
  // `external`: the tensor's memory can be seen by others than the recorded operators.
  void add(const at::Tensor& tensor, common::ValueId value, bool external);
  // The tensor of a value while it lives, else an undefined one.
  at::Tensor tensor(common::ValueId value) const;
  std::vector<at::Tensor> living() const;
  // Values whose tensors have died since they were asked for last.
  std::vector<common::ValueId> takeDead();
  // Takes note of what operators may have changed of the tensor itself.
  // An external tensor that got another storage makes that storage external.
  void refresh(common::ValueId value, bool external = false);
  void markExternal(const at::Tensor& tensor);
  // Autograd history that no operator gave it: an autograd.Function's output. (Views get theirs
  // lazily.)
  static bool historyAppeared(const Entry& entry, const at::Tensor& tensor);
  static bool storageChanged(const Entry& entry, const at::Tensor& tensor);
  // Writing the tensor may be seen outside the recording. When in doubt, true.
  bool isExternal(const at::Tensor& tensor) const;

 private:
  void markExternal(const c10::TensorImpl& impl);

  std::unordered_map<const c10::TensorImpl*, Entry> entries_;
  std::unordered_map<common::ValueId, const c10::TensorImpl*> byValue_;
  std::vector<common::ValueId> living_;  // not yet seen dead
  std::unordered_map<const c10::StorageImpl*, WeakStorage> externalStorages_;
  bool externalWithoutStorage_ = false;
};

// The requires_grad flag of a leaf, whatever its history says.
bool explicitGrad(const at::Tensor& tensor);

}  // namespace glowplug::aten
