#pragma once

// Private to aten/.
#include <unordered_map>

#include "aten/op_feed.h"
#include "aten/op_program_impl.h"
#include "aten/op_recorder_impl.h"

namespace glowplug::aten {

struct OpFeed::Impl {
  Impl(const ir::Trace& trace, const OpTable& table, Values& values, size_t end);

  // The next operator of the replay is that one: takes it, or tells in words what is wrong.
  std::string take(const c10::OperatorHandle& op, const std::vector<ir::Operand>& operands,
                   const ir::Event** taken);
  bool isNext(const c10::OperatorHandle& op) const {
    return next < end && table.operators.at(trace.events[next].op.index()) == op;
  }
  // The next event, if it is about that operator.
  const ir::Event* nextNamed(const char* name) const;
  // Results for the stack in place of a call. `known` finds a tensor that the new recording has
  // under that number already.
  std::vector<c10::IValue> results(const ir::Event& event, const c10::FunctionSchema& schema,
                                   const ValueTracker& tracker) const;

  const ir::Trace& trace;
  const OpTable::Impl& table;
  std::vector<c10::IValue>& slots;
  TensorTrail& trail;
  size_t next = 0, end;
  std::unordered_map<common::ValueId, common::ValueId> same;  // inputs that are an earlier one

 private:
  common::ValueId first(common::ValueId id) const {
    const auto found = same.find(id);
    return found == same.end() ? id : found->second;
  }
  void skipOthers();
  c10::IValue result(common::ValueId id, const ValueTracker& tracker) const;
};

}  // namespace glowplug::aten
