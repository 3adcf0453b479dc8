#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "aten/op_table.h"
#include "cpython/object_table.h"
#include "guard/guard_tree.h"
#include "ir/trace.h"

namespace glowplug::guard {

// Whether it is looked at only in the middle of a call: what an opaque call returned, an object
// built for one, or what was read first after a call that may have changed anything.
bool isLate(const ir::Trace& trace, common::SourceId source);
bool isLate(const ir::Trace& trace, const ir::Guard& guard);

// Guards that are checked in the middle of a replay, after an opaque call.
class LateGuards {
 public:
  // guards: indices into trace.guards. wanted: sources whose objects are asked for. The tables must
  // outlive this.
  LateGuards(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops,
             std::vector<size_t> guards, const std::vector<common::SourceId>& wanted);
  ~LateGuards();

  // Whether all hold now. Then fetched[i] is the object at the i-th wanted source.
  bool hold(const Call& call, std::vector<cpython::Ref>& fetched) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::guard
