#include "replay/rerun.h"

#include "replay/plan_impl.h"

namespace glowplug::replay {

using cpython::Ref;
using ir::Event;

struct Rerun::Impl {
  explicit Impl(std::unique_ptr<Suspended> stopped)
      : suspended(std::move(stopped)),
        state(*suspended->state),
        context(*state.context),
        trace(context.plan->trace),
        operators(trace, context.plan->ops, context.values, state.done) {
    skipOthers();
  }

  // Values are simply computed again.
  void skipOthers() {
    size_t end = state.done + (state.error ? 1 : 0);
    while (next < end && !ir::isTaken(trace.events[next])) next++;
    if (next >= end) next = trace.events.size();
  }

  std::unique_ptr<Suspended> suspended;
  Suspended::State& state;
  Context& context;
  const ir::Trace& trace;
  aten::OpFeed operators;
  size_t next = 0;  // opaque event
};

Rerun::Rerun(std::unique_ptr<Suspended> suspended)
    : impl_(std::make_unique<Impl>(std::move(suspended))) {}
Rerun::~Rerun() = default;

bool Rerun::begin() {
  impl_->context.state.reset();  // torch's thread state is what it was when the call began
  impl_->context.values.trail().rewind();
  return impl_->context.undo.undo();
}

aten::OpFeed& Rerun::operators() { return impl_->operators; }

bool Rerun::opaquePending() const { return impl_->next < impl_->trace.events.size(); }

bool Rerun::programRan() const {
  return ir::mayChangeAnything(impl_->trace.events[impl_->next]) ||
         (impl_->context.programRan && impl_->next == impl_->state.event);
}

PyObject* Rerun::takeOpaque() {
  size_t taken = impl_->next++;
  impl_->skipOthers();
  impl_->context.values.trail().advance(taken);
  Suspended::State& state = impl_->state;
  // The effects before this call are done again by now; what the call made of them comes back.
  bool last = taken == impl_->context.flushedAt;
  if (last && !impl_->context.undo.empty() && !impl_->context.undo.redo()) return nullptr;
  if (state.error && taken == state.event) {
    PyErr_Restore(state.error.release(), state.errorValue.release(),
                  state.errorTraceback.release());
    return nullptr;
  }
  const Event& event = impl_->trace.events[taken];
  if (event.results.empty()) return Py_NewRef(Py_None);
  if (event.keeps && impl_->trace.values[event.results[0].index()].kind == ir::ValueKind::Tensor) {
    Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(event.results.size())));
    for (size_t i = 0; tuple && i < event.results.size(); i++)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                       impl_->operators.tensor(event.results[i]));
    return tuple.release();
  }
  // The program's own from here on, and its end is the program's to decide.
  Ref result = impl_->context.takeResult(event.results[0]);
  if (!result) PyErr_SetString(PyExc_SystemError, "glowplug: the result of a call is gone");
  return result.release();
}

PyObject* Rerun::built(common::RecipeId id) const {
  return id.index() < impl_->context.memo.size() ? impl_->context.built(id) : nullptr;
}

}  // namespace glowplug::replay
