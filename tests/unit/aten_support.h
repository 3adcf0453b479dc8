#pragma once

// Python functions recorded and replayed through aten/ alone: inputs are the tensors given, the
// result is a tensor or a (nested) tuple, list or dict of tensors.

#include <Python.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "aten/op_program.h"
#include "aten/op_recorder.h"
#include "aten/op_table.h"
#include "cpython/ref.h"
#include "ir/trace.h"
#include "python_support.h"

namespace glowplug::aten::testing {

using common::ValueId;
using cpython::Ref;
using glowplug::testing::Python;

class Recorded : public OpSink {
 public:
  // Calls `function` (a name in the namespace) on `inputs` (expression of a list of tensors).
  void record(const std::string& function, const std::string& inputs);
  // Runs the recorded operators on other inputs; the flat list of results, or nothing with an error
  // set or `status` telling why.
  Ref replay(const std::string& inputs);
  bool warnAtOnce = true;  // as after a write; else warnings wait until the end
  bool warned = true;      // what waited until the end raised nothing

  void onOp(ir::Event event) override { trace.events.push_back(std::move(event)); }
  void onScalar(ValueId value, PyObject* scalar) override;
  void onRefuse(const char* reason, const std::string& detail) override;
  void enterOperator() override { ++inside; }
  void leaveOperator() override { --inside; }

  // The only event of that operator.
  const ir::Event& only(const std::string& name) const;
  bool has(const std::string& name) const;
  const ir::Value& value(ValueId id) const { return trace.values.at(id.index()); }
  std::string text() const;  // for messages

  ir::Trace trace;
  OpTable table;
  std::string refusal;  // "reason: detail"
  std::vector<std::pair<ValueId, Ref>> scalars;
  std::vector<ValueId> inputs, results;
  Ref result;
  size_t failed = 0;
  int status = 0;
  int inside = 0;
  bool keepAll = false;  // give no last uses

 private:
  std::vector<std::vector<ValueId>> lastUses() const;
};

}  // namespace glowplug::aten::testing
