#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "aten/native_code.h"
#include "aten/op_table.h"
#include "aten/tensor_trail.h"
#include "ir/trace.h"

namespace glowplug::aten {

// The values of one replay: tensors, scalars and lists, by ValueId. Belongs to one call on one
// thread.
class Values {
 public:
  explicit Values(size_t count);
  ~Values();
  Values(Values&&) noexcept;

  void setTensor(common::ValueId id, PyObject* tensor);  // borrowed
  bool has(common::ValueId id) const;
  PyObject* object(
      common::ValueId id) const;  // new reference: the tensor or scalar as Python object
  bool sizesAre(common::ValueId id, const std::vector<int64_t>& sizes) const;
  // A Scalar value equals the expected Python bool, int or float (NaN equals NaN).
  bool scalarIs(common::ValueId id, PyObject* expected) const;
  void clear(common::ValueId id);
  TensorTrail& trail();
  // From here on the program is not run from its start again: Python's `warnings` get what
  // operators have warned of, and later warnings right after their operators. False with a Python
  // error set when a filter makes an error of one.
  bool passWarningsOn();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// The Op and State events of a trace, ready to run through the dispatcher without Python.
class OpProgram {
 public:
  // lastUses[e]: values to drop after event e (their last use). A value that an operator uses last
  // is moved into the call, so that memory is freed, or reused in place, as eager would. The table
  // must outlive the program. `native`: kernels that take the place of some of the operators.
  OpProgram(const ir::Trace& trace, const OpTable& table,
            const std::vector<std::vector<common::ValueId>>& lastUses,
            std::shared_ptr<const NativeCode> native = nullptr);
  ~OpProgram();

  // How run() ended.
  enum Status : int {
    Done = 0,
    Raised = -1,    // a Python error is set: the type and message that eager gives
    Diverged = -2,  // an operator returned a list of another length than recorded, or another
                    // tensor where it returned a known one; sizes depend on data. No Python error
                    // is set. The operator has run; its results are lost.
  };
  // Runs events [begin, end), all of them Op, State or Input (Inputs are skipped). Unless Done,
  // *failed is the event that raised or differed. Releases the GIL while operators run. Changes
  // this thread's state as State events tell, also when it fails: see StateRestore. Warnings wait
  // in `values` until an input is written or passWarningsOn().
  int run(Values& values, size_t begin, size_t end, size_t* failed) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Restores this thread's grad mode, inference mode and autocast on destruction, when an exit leaves
// them changed.
class StateRestore {
 public:
  StateRestore();
  ~StateRestore();
  void dismiss();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::aten
