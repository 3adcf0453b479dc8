#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "aten/backward.h"
#include "aten/op_feed.h"
#include "aten/op_table.h"
#include "ir/trace.h"

namespace glowplug::aten {

// Who is told of what the dispatcher sees. All calls come with the GIL held, on the recording
// thread.
class OpSink {
 public:
  virtual ~OpSink() = default;
  // An operator has run. The event is complete but for its site; the sink appends it to the trace.
  virtual void onOp(ir::Event event) = 0;
  // The operator of the last event returned a number or bool to C++ or Python: `scalar` (borrowed)
  // is it as Python object. Unless the sink binds it to a Python value, it must become a Fork.
  virtual void onScalar(common::ValueId value, PyObject* scalar) = 0;
  // The recording cannot go on (unknown tensor, operand of a kind that cannot be kept...).
  // Operators that follow still run, unrecorded.
  virtual void onRefuse(const char* reason, const std::string& detail) = 0;
  // Around the run of each operator: Python code that runs in between (kernels of custom operators,
  // autograd hooks) belongs to the operator and is not to be evaluated or recorded.
  virtual void enterOperator() {}
  virtual void leaveOperator() {}
};

// Records the operators that this thread calls, above autograd and autocast, one event per
// composite operator. Holds recorded tensors so weakly that their memory is freed when the program
// frees them.
//
// What the dispatcher does not see, the recorder finds out or is told:
// - grad mode, inference mode and autocast are compared before each operator; a difference becomes
//   State events. syncState() does the same where no operator follows: before Opaque and Return
//   events.
// - requires_grad set on a known tensor (factory functions do so too) is found when the tensor is
//   next used or looked up, and becomes an aten::requires_grad_ event.
// - data (`t.data`), grad (`t.grad`), `t.data = u`, `t.grad = u` must be told: addAlias, addWrite.
// - memory changed without the dispatcher (numpy, ctypes, DLPack, torch.from_numpy...) cannot be
//   seen: the recorder's user must make such calls opaque. The same holds for torch.tensor(array):
//   the content of a tensor made out of Python data is kept as a constant.
class OpRecorder {
 public:
  OpRecorder(ir::Trace& trace, OpTable& table, OpSink& sink);
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;

  void start();  // on this thread; stop() on the same thread
  void stop();
  // While one lives, operators of this thread run unrecorded.
  class Pause {
   public:
    Pause();
    ~Pause();

   private:
    bool included_;
  };

  // A tensor comes in from `source`: makes its value, metadata (trace.metaTexts too) and Input
  // event text. The caller adds the TensorMeta guard. Returns the value it already has, if it has
  // one.
  common::ValueId addInput(PyObject* tensor, common::SourceId source);
  // Tensor that an opaque call returned.
  common::ValueId addResult(PyObject* tensor);
  // autograd.Function.apply gave `result` for `given`, which its forward gave: the same tensor with
  // a history, or another one with the same contents.
  common::ValueId addFunctionResult(PyObject* result, PyObject* given);
  // Writing the tensor may be seen outside.
  bool isExternal(PyObject* tensor) const;
  // `result` was made of `self` without the dispatcher: op is "data" or "grad". Records an event.
  common::ValueId addAlias(PyObject* result, const char* op, PyObject* self);
  // `t.grad`, new reference, with the warning that torch gives for tensors that are not leaves.
  // Null with a Python error set when a filter makes an error of it.
  PyObject* readGrad(PyObject* tensor);
  // After `self.data = other` (op "set_data"), `self.grad = other` ("set_grad"; other may be None)
  // or `self.retain_grad()` ("retain_grad"; other is None).
  void addWrite(const char* op, PyObject* self, PyObject* other);

  // Torch's engine has run a backward pass, unrecorded, and given `result` (a tuple or None).
  void addBackward(const BackwardCall& call, PyObject* result);
  // A tensor that was made in this call has got another shape in place.
  bool reshapedFresh() const;
  // The replay that is followed has run a backward pass next: list of the leaves that it reached,
  // new reference. nullptr, without an error, when it has run something else.
  PyObject* nextBackwardLeaves();
  // What the replay got from it; new reference, nullptr with an error set when it did something
  // else.
  PyObject* takeBackward(const BackwardCall& call);

  // A pair of default hooks for saved tensors has been set or taken away (-1), and a replay knows.
  void addSavedHooks(int change);

  // A random generator that existed before the recording. Operators that draw from another one than
  // these and the default one are refused: it was made and seeded without the dispatcher.
  void addGenerator(PyObject* generator);

  // Records what was done to tensors that no operator has used since (requires_grad_()).
  void syncFlags();
  // Appends State events for what changed since the last event.
  void syncState();
  // torch.clear_autocast_cache() was called.
  void addAutocastClear();
  // An opaque call has run: at replay it runs again, so what it changed of the state needs no
  // event.
  void acceptState();

  // Before the first input is added: from now on it is kept what tensors were before they are
  // changed.
  void keepWritten();
  // A backward pass is about to add to gradients.
  void beforeBackward();
  // Puts all that was kept back.
  void restoreWritten();

  // Until the feed is empty, operators are not run: their results come from it. It must outlive the
  // recording. An operator that is not the feed's next raises RuntimeError.
  void follow(OpFeed& feed);
  // Values whose tensors the program has let go of since it was asked last.
  std::vector<common::ValueId> takeDead();

  // The value of a tensor, or an invalid id.
  common::ValueId find(PyObject* tensor) const;
  // Its sizes may vary while all guards hold.
  bool isDataDependent(PyObject* tensor) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::aten
