#pragma once

// Private to aten/: how an operator call becomes an event.
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "aten/op_recorder.h"
#include "aten/op_table_impl.h"
#include "aten/op_traits.h"
#include "aten/saved_tensors.h"
#include "aten/thread_modes.h"
#include "aten/value_tracker.h"
#include "aten/warning_buffer.h"

namespace glowplug::aten {

ir::Operand valueOperand(common::ValueId value);

struct OpRecorder::Impl {
  Impl(ir::Trace& trace, OpTable& table, OpSink& sink)
      : trace(trace), publicTable(table), table(table.impl()), sink(sink) {}

  struct Written {
    common::ValueId value;
    bool external;
  };

  // One operator call, from before it runs until its event is complete.
  struct Call {
    const c10::OperatorHandle& op;
    const OpTraits& traits;
    ir::Event event = {};
    std::vector<Written> written = {};
    bool selfVaries = false;    // sizes of the first operand may vary
    bool operandsVary = false;  // sizes of an operand may vary
    bool sizesFromData = false;
    bool zeroDim = false;
    bool belowAutograd = false;  // runs between two State events that say so
  };

  void call(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void prepare(Call& call, const torch::jit::Stack& stack);
  void finish(Call& call, const torch::jit::Stack& stack);
  void callFed(Call& call, torch::jit::Stack* stack);

  ir::Operand operand(Call& call, const c10::IValue& argument, bool written);
  void noteWrite(Call& call, const c10::IValue& argument);
  ir::Operand tensorOperand(Call& call, const at::Tensor& tensor, bool written);
  ir::Operand constant(c10::IValue value);
  // Data that Python or torch's bindings made outside the dispatcher, or nothing.
  bool isConstantData(const Call& call, const at::Tensor& tensor) const;

  struct Number {
    common::ValueId value;
    c10::IValue number;
  };
  void addResults(Call& call, const c10::IValue& result, std::vector<Number>& numbers);
  common::ValueId resultValue(Call& call, const at::Tensor& tensor);

  // The value of a tensor, or none. First records a requires_grad_() that no operator told of.
  common::ValueId valueOf(const at::Tensor& tensor);
  void noteGradFlag(ValueTracker::Entry& entry, const at::Tensor& tensor);
  common::ValueId addValue(const at::Tensor& tensor, PyTypeObject* type, bool external);
  common::ValueId addAlias(const at::Tensor& result, std::string_view op, const at::Tensor& self);
  const at::Tensor& readGrad(const at::Tensor& tensor);
  void addWrite(std::string_view op, const at::Tensor& self, const at::Tensor& other);
  void noteReshaped(const at::Tensor& tensor);
  ir::Operand leavesOperand(PyObject* leaves);
  void addBackward(const BackwardCall& call, const std::vector<at::Tensor>& results);
  void takeFlags();
  void emitUndispatched(const char* name, std::vector<ir::Operand> operands,
                        std::vector<common::ValueId> results, bool writesInput);

  void syncState();
  void syncState(const ThreadModes& now);
  void syncStateFor(Call& call, OpTraits::Arguments arguments);
  // May stand as a constant in every replay.
  bool canKeep(const c10::IValue& value) const;
  void emitState(ir::StateChange change);
  void refuse(const char* reason, const std::string& detail);
  const OpTraits& traitsOf(const c10::OperatorHandle& op);
  void syncTexts();

  ir::Trace& trace;
  OpTable& publicTable;
  OpTable::Impl& table;
  OpSink& sink;
  ValueTracker tracker;
  ThreadModes modes{};
  uint64_t switches = 0;
  bool refused = false;
  // A tensor that was made in this call has got another shape in place.
  bool reshapedFresh = false;
  OpFeed* feed = nullptr;
  std::unique_ptr<SavedTensors> saved;
  int savedHooks = 0;  // pairs of default hooks that replays set too
  std::vector<at::Generator> generators;
  std::unordered_map<c10::OperatorHandle, OpTraits> traits;
};

}  // namespace glowplug::aten
