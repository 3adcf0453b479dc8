#pragma once

#include <Python.h>

#include <memory>
#include <string>

#include "common/ids.h"

// Headers of this folder name no torch type: torch's headers stay in the .cpp files.
namespace glowplug::aten {

// What is guarded of a tensor: python type, dispatch keys, dtype, device, layout, sizes, strides,
// requires_grad, and the bits conj / neg / inference / is-view-with-grad that change how operators
// run.
class TensorMeta;

// The operators, constant operands and tensor metadata that one trace names.
class OpTable {
 public:
  OpTable();
  ~OpTable();
  OpTable(const OpTable&) = delete;

  // Metadata of a Python tensor; equal metadata gives the same id.
  common::MetaId addMeta(PyObject* tensor);
  const TensorMeta* meta(common::MetaId id) const;
  std::string metaText(common::MetaId id) const;  // "f32[2,4]{4,1} cpu"
  std::string ivalueText(common::IValueId id) const;
  PyObject* toPython(common::IValueId id) const;          // new reference, as torch.ops takes it
  std::string operatorName(common::OperatorId id) const;  // "aten::add.Tensor"

  // Both tables' operands are the same: equal numbers and texts, tensors of equal metadata and
  // bits, the same generator.
  static bool sameConstant(const OpTable& a, common::IValueId idInA, const OpTable& b,
                           common::IValueId idInB);
  // The operator can change a tensor that is given to it.
  bool mayWrite(common::OperatorId id) const;
  // The operator stands for what Python does without the dispatcher; only a plan can run it.
  bool isOwn(common::OperatorId id) const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

bool isTensor(PyObject* object);  // torch.Tensor, Parameter or a subclass
// exactly torch.Tensor, Parameter or Buffer: no __torch_function__/dispatch subclass
bool isPlainTensor(PyObject* object);
// A tensor's .grad or None, new reference, without torch's warning about tensors that are not
// leaves.
PyObject* gradientOf(PyObject* tensor);

// True when the Python object is a tensor with that metadata. A few nanoseconds; never fails.
bool metaMatches(const TensorMeta& meta, PyObject* object);
// In words, what differs ("size of dim 0: 3, was 2"); empty when it matches.
std::string metaDifference(const TensorMeta& meta, PyObject* object);

// Thread state of torch that operators depend on: grad mode, inference mode, autocast (per device:
// enabled, dtype; cache), default dtype, deterministic algorithms, mkldnn/flash switches, float32
// matmul precision...
class StateSnapshot {
 public:
  StateSnapshot();  // of this thread, now
  ~StateSnapshot();
  StateSnapshot(StateSnapshot&&) noexcept;
  StateSnapshot& operator=(StateSnapshot&&) noexcept;
  bool matches() const;            // this thread's state is that one
  std::string difference() const;  // "grad mode: off, was on"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Why compiled code must step aside on this thread now (TorchDispatchMode, TorchFunctionMode,
// functorch level, tracer, ...), as the id of a reason in common/reasons.def, or nullptr. A few
// nanoseconds.
const char* bypassReason();

// The default CPU generator's state, to take a random draw back.
class RandomState {
 public:
  RandomState();  // saves
  ~RandomState();
  void restore();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::aten
