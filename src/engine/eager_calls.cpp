// Entries that stay eager: the word about it, and their calls.

#include <fmt/format.h>

#include <utility>

#include "cpython/modules.h"
#include "engine/callee_entries.h"
#include "engine/entry_timing.h"
#include "insight/counters.h"

namespace glowplug::engine {

using common::Reason;
using common::Refusal;
using cpython::Ref;
using insight::counters;
using insight::Stat;

void Entry::tooManyTraces() {
  Refusal refusal;
  refusal.reason = Reason::too_many_traces;
  refusal.detail =
      fmt::format("{} after {} traces; last guard to fail: {}", name_, traceCount(), lastMiss_);
  counters().addRefusal(refusal.reason);
  goEager(std::move(refusal));
}

// Once, on stderr, so that nobody wonders why a call is slow. What the program has raised stays
// set. So does an interrupt that comes meanwhile: it is meant for the program.
void Entry::goEager(Refusal refusal) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref raised = Ref::steal(type), raisedValue = Ref::steal(value),
      raisedTraceback = Ref::steal(traceback);
  Ref message = Ref::steal(PyUnicode_FromString(
      fmt::format("glowplug: {} stays eager: {}", name_, refusal.textWithHint()).c_str()));
  eager_ = std::move(refusal);
  Ref logging = cpython::importModule("logging");
  Ref logger = logging
                   ? Ref::steal(PyObject_CallMethod(logging.get(), "getLogger", "s", "glowplug"))
                   : Ref();
  Ref done =
      logger ? Ref::steal(PyObject_CallMethod(logger.get(), "warning", "sO", "%s", message.get()))
             : Ref();
  if (!done && !PyErr_ExceptionMatches(PyExc_Exception)) return;
  PyErr_Restore(raised.release(), raisedValue.release(), raisedTraceback.release());
}

std::vector<std::shared_ptr<Entry>> Entry::callees() const {
  return callees_ ? callees_->entries() : std::vector<std::shared_ptr<Entry>>();
}

// The program's own frame runs; what it calls may be compiled.
PyObject* Entry::stayEager(const guard::Call& call, Timing& timing) {
  counters().add(Stat::eager_calls);
  timing.record.kind = common::CallRecord::Kind::Eager;
  const Reason reason = eager_->reason;
  timing.record.reason = common::info(reason).id;
  // An error of our own is no reason to go on trying.
  const bool trusted = reason != Reason::internal_error && reason != Reason::unknown_source;
  if (!callees_ && trusted) callees_ = std::make_shared<CalleeEntries>(backend_, options_, depth_);
  std::shared_ptr<CalleeEntries> callees = callees_;
  int64_t start = timing.mark();
  PyObject* result = callees && callees->useful() ? callees->run(call) : original(call);
  timing.record.execute_ns = timing.mark() - start;
  return result;
}

}  // namespace glowplug::engine
