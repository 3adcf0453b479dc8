#pragma once

#include <Python.h>

#include <memory>
#include <string>

#include "aten/op_program.h"
#include "aten/op_table.h"
#include "ir/trace.h"

namespace glowplug::aten {

// The operators that a replay has run, for a recording that runs the same program again from its
// start: up to the point where the replay stopped an operator is not called; its results are those
// of the replay. A tensor that is gone by then is stood in for by one of the same metadata and
// undefined contents: the program can do nothing with it but what it did before.
class OpFeed {
 public:
  // Events before `end` have been run. Everything must outlive this.
  OpFeed(const ir::Trace& trace, const OpTable& table, Values& values, size_t end);
  ~OpFeed();
  OpFeed(const OpFeed&) = delete;

  // An operator is left that the replay has run.
  bool pending() const;
  // The replay had that number for an input, found at that path.
  bool isInput(common::ValueId value, common::SourceId source) const;
  // Two inputs of the replay are one tensor now.
  void noteSame(common::ValueId first, common::ValueId second);
  // A tensor of the replay, or what stands in for it; new reference.
  PyObject* tensor(common::ValueId value) const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::aten
