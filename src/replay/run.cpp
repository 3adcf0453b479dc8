// Running a plan.

#include <exception>
#include <optional>
#include <utility>

#include "common/log.h"
#include "cpython/constant.h"
#include "cpython/error_pause.h"
#include "cpython/frame_watch.h"
#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::ValueId;
using cpython::Ref;
using ir::Event;
using ir::EventKind;

Suspended::Suspended(std::unique_ptr<State> state) : state(std::move(state)) {}
Suspended::~Suspended() {
  if (state && state->context && !committed()) state->context->takeBackRandom();
}
bool Suspended::committed() const { return state->context->committed; }
bool Suspended::programRan() const { return state->context->programRan; }

Context::Context(const Plan::Impl& plan, std::shared_ptr<const Schedule> schedule,
                 const guard::Call& call)
    : plan(&plan),
      schedule(std::move(schedule)),
      call(call),
      capacity(plan.valueCapacity),
      values(capacity),
      memo(plan.trace.recipes.size()),
      late(plan.lateWanted.size()) {
  this->call.late = this;
}

bool Context::bind(std::vector<Ref> objects) {
  fetched = std::move(objects);
  named.clear();
  for (common::ObjectId id : plan->named) {
    named.push_back(Ref::borrow(plan->objects.get(id)));
    if (!named.back()) return false;
  }
  for (const auto& [id, index] : schedule->bound) values.setTensor(id, fetched[index].get());
  for (size_t i : plan->gradOwners) values.trail().track(fetched[i].get());
  if (plan->hasRandom && !random) random = std::make_unique<aten::RandomState>();
  if (plan->hasState && !state) state = std::make_unique<aten::StateRestore>();
  return true;
}

PyObject* Context::value(ValueId id) {
  if (int32_t index = plan->inputIndex[id.index()]; index >= 0)
    return Py_NewRef(fetched[static_cast<size_t>(index)].get());
  if (!objects.empty()) {
    if (auto object = objects.find(id.value); object != objects.end())
      return Py_NewRef(object->second.get());
  }
  PyObject* made = values.object(id);
  // A number is one object wherever it goes, as a tensor is.
  if (made && plan->trace.values[id.index()].kind == ir::ValueKind::Scalar)
    objects[id.value] = Ref::borrow(made);
  return made;
}

PyObject* Context::source(common::SourceId id) {
  int32_t index = plan->wantedIndex[id.index()];
  if (index >= 0) return Py_NewRef(fetched[static_cast<size_t>(index)].get());
  PyObject* object = late[static_cast<size_t>(plan->lateIndex[id.index()])].get();
  if (!object) PyErr_SetString(PyExc_SystemError, "glowplug: an object is needed too early");
  return Py_XNewRef(object);
}

PyObject* Context::result(ValueId id) const {
  auto object = objects.find(id.value);
  return object == objects.end() ? nullptr : object->second.get();
}

Ref Context::takeResult(ValueId id) {
  auto node = objects.extract(id.value);
  return node ? std::move(node.mapped()) : Ref();
}

PyObject* Context::built(common::RecipeId id) const { return memo[id.index()].get(); }

Ref Context::build(common::RecipeId id) {
  return replay::build({plan->trace, plan->objects, *this}, memo, id);
}

Outcome Plan::run(const guard::Call& call, std::vector<Ref> fetched,
                  std::unique_ptr<Suspended>& suspended) {
  if (impl_->nativeSlot->hasNew()) impl_->takeNative();
  auto context = std::make_unique<Context>(*impl_, impl_->schedule, call);
  if (!context->bind(std::move(fetched))) return {Outcome::Kind::Exited, nullptr, 0};
  Outcome outcome = impl_->runFrom(*context, 0);
  return impl_->suspend(std::move(context), outcome, suspended);
}

// Keeps the replay of a late guard that was not met, or of a call that cannot begin again.
Outcome Plan::Impl::suspend(std::unique_ptr<Context> context, Outcome outcome,
                            std::unique_ptr<Suspended>& suspended) const {
  if (outcome.kind != Outcome::Kind::Exited) return outcome;
  const Event& at = trace.events[outcome.event];
  bool opaque = at.kind == EventKind::Opaque;
  if (!context->committed && !ir::isLateGuard(at) && !opaque) return outcome;
  auto state = std::make_unique<Suspended::State>();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  state->error = Ref::steal(type);
  state->errorValue = Ref::steal(value);
  state->errorTraceback = Ref::steal(traceback);
  state->context = std::move(context);
  state->origin = serial;
  state->event = outcome.event;
  state->done = outcome.event + (opaque && !state->error ? 1 : 0);
  suspended = std::make_unique<Suspended>(std::move(state));
  return outcome;
}

bool Plan::Impl::isMet(Context& context, size_t e) const {
  const Event& event = trace.events[e];
  if (event.kind == EventKind::Opaque) return passes(context, e);
  if (event.kind == EventKind::Sizes) return context.values.sizesAre(event.value, event.sizes);
  PyObject* expected = objects.get(event.expected);
  if (!expected) return false;
  if (PyObject* object = context.result(event.value))
    return cpython::constantsEqual(object, expected);
  return context.values.scalarIs(event.value, expected);
}

// An operator, opaque call or backend raised at `event`. written: it may have changed something
// before it did.
Outcome Plan::Impl::fail(Context& context, size_t event, bool written) const {
  // An interrupt or exit came from outside: running the program again would lose it.
  if (!context.committed && PyErr_ExceptionMatches(PyExc_Exception)) {
    // Nothing has happened yet that the program would not do itself: it can run, and raise with the
    // user's own lines in the traceback.
    if (common::logs(common::Channel::Calls)) PyErr_WriteUnraisable(nullptr);
    PyErr_Clear();
    context.takeBackRandom();
    return {Outcome::Kind::Retry, nullptr, event};
  }
  if (!context.committed) {
    context.values.passWarningsOn();
    context.takeBackRandom();
    return {Outcome::Kind::Raised, nullptr, event};
  }
  if (!written) {
    // The program runs again up to here; an operator raises there anew, where the program may
    // catch it. What an opaque call raised is kept.
    if (trace.events[event].kind != EventKind::Opaque) PyErr_Clear();
    return {Outcome::Kind::Exited, nullptr, event};
  }
  {
    cpython::ErrorPause pause;
    commitBeforeError(context, event);
  }
  const Event& at = trace.events[event];
  if (at.site.valid()) {
    const ir::Site& site = trace.sites[at.site.index()];
    _PyTraceback_Add(site.function.c_str(), site.file.c_str(), site.line);
  }
  return {Outcome::Kind::Raised, nullptr, event};
}

bool Plan::Impl::runOperators(Context& context, const Step& step, Outcome* outcome) const {
  size_t failed = step.begin;
  int status = context.schedule->program->run(context.values, step.begin, step.end, &failed);
  if (status == aten::OpProgram::Done) {
    context.committed |= step.writesInput;
    return true;
  }
  for (size_t e = step.begin; e < failed; e++) context.committed |= trace.events[e].writesInput;
  if (status != aten::OpProgram::Diverged) {
    *outcome = fail(context, failed);
    return false;
  }
  if (!context.committed) context.takeBackRandom();
  *outcome = {Outcome::Kind::Exited, nullptr, failed};
  if (!trace.events[failed].writesInput) return false;
  context.committed = true;
  PyErr_SetString(PyExc_RuntimeError,
                  "glowplug: an operator returned other tensors than recorded, after a write that "
                  "cannot be taken back");
  *outcome = fail(context, failed, true);
  return false;
}

bool Plan::Impl::takeOutputs(Context& context, const Segment& segment, PyObject* result) const {
  bool tuple = PyTuple_Check(result);
  if (!tuple && !PyList_Check(result)) {
    PyErr_Format(PyExc_TypeError, "the backend returned %.100s instead of a tuple or list",
                 Py_TYPE(result)->tp_name);
    return false;
  }
  Py_ssize_t count = Py_SIZE(result);
  if (static_cast<size_t>(count) != segment.outputs.size()) {
    PyErr_Format(PyExc_RuntimeError, "the backend returned %zd tensors for %zu outputs", count,
                 segment.outputs.size());
    return false;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* item = tuple ? PyTuple_GET_ITEM(result, i) : PyList_GET_ITEM(result, i);
    if (!aten::isTensor(item)) {
      PyErr_Format(PyExc_TypeError, "the backend returned %.100s for output %zd, a tensor",
                   Py_TYPE(item)->tp_name, i);
      return false;
    }
    context.values.setTensor(segment.outputs[static_cast<size_t>(i)], item);
  }
  return true;
}

bool Plan::Impl::runSegment(Context& context, const Step& step, Outcome* outcome) const {
  const Segment& segment = segments[step.index];
  // The backend's own reference is the only other one to what it uses last.
  Objects arguments;
  std::vector<PyObject*> borrowed;
  arguments.reserve(segment.inputs.size());
  borrowed.reserve(segment.inputs.size());
  for (ValueId id : segment.inputs) {
    arguments.push_back(Ref::steal(context.value(id)));
    borrowed.push_back(arguments.back().get());
    if (borrowed.back()) continue;
    *outcome = fail(context, step.begin);
    return false;
  }
  context.committed |= step.writesInput;
  Ref result = Ref::steal(PyObject_Vectorcall(context.schedule->backends[step.index].get(),
                                              borrowed.data(), borrowed.size(), nullptr));
  if (!result) {
    *outcome = fail(context, step.begin, step.writesInput);
    return false;
  }
  if (takeOutputs(context, segment, result.get())) return true;
  // A backend that does not keep to its contract is to be heard of, not worked around.
  *outcome = {Outcome::Kind::Raised, nullptr, step.begin};
  return false;
}

bool Plan::Impl::runOpaque(Context& context, const Step& step, Outcome* outcome) const {
  const Event& event = trace.events[step.begin];
  if (!event.pure) {
    std::vector<Pending> pending;
    bool ready = prepareEffects(context, commits.countAt.at(step.begin), pending);
    if (!ready || !context.values.passWarningsOn()) {
      *outcome = fail(context, step.begin, true);
      return false;
    }
    if (!pending.empty()) context.flushedAt = step.begin;
    if (!commit(context, pending, false)) {
      *outcome = {Outcome::Kind::Raised, nullptr, step.begin};
      return false;
    }
  }
  if (!callOpaque(context, step.begin)) {
    *outcome = fail(context, step.begin);
    return false;
  }
  if (!context.programRan && passes(context, step.begin)) return true;
  *outcome = {Outcome::Kind::Exited, nullptr, step.begin};
  return false;
}

// Several results come as a tuple.
bool Plan::Impl::takeTensors(Context& context, const Event& event, PyObject* tuple) {
  for (size_t i = 0; i < event.results.size(); i++) {
    PyObject* tensor = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
    if (!aten::isTensor(tensor)) {
      PyErr_SetString(PyExc_SystemError, "glowplug: an autograd.Function gave no tensor");
      return false;
    }
    context.values.setTensor(event.results[i], tensor);
  }
  return true;
}

bool Plan::Impl::callOpaque(Context& context, size_t number) const {
  const Event& event = trace.events[number];
  // What is only looked at is a snapshot, built apart from what is handed out later.
  RecipeMemo apart;
  bool snapshot = !ir::mayChangeAnything(event) && !event.keeps;
  if (snapshot) apart.resize(trace.recipes.size());
  Objects owned;
  std::vector<PyObject*> arguments;
  for (common::RecipeId id : event.recipes) {
    owned.push_back(replay::build({trace, objects, context}, snapshot ? apart : context.memo, id));
    arguments.push_back(owned.back().get());
    if (!owned.back()) return false;
  }
  PyObject* keywords = event.keywords.valid() ? objects.get(event.keywords) : nullptr;
  size_t named = keywords ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0;
  context.committed |= !event.pure;
  Ref result;
  {
    std::optional<cpython::FrameWatch> watch;
    if (ir::keepsToItself(event)) watch.emplace();
    result = Ref::steal(PyObject_Vectorcall(arguments[0], arguments.data() + 1,
                                            arguments.size() - 1 - named, keywords));
    context.programRan = watch && watch->ranProgram();
  }
  // What it was given may have been changed or kept: these are the objects that the program has.
  for (size_t i = 0; context.programRan && i < apart.size(); i++)
    if (apart[i] && !context.memo[i]) context.memo[i] = std::move(apart[i]);
  if (!gradOwners.empty()) context.values.trail().note(number);
  if (!result) return false;
  if (event.results.empty()) return true;
  ValueId id = event.results[0];
  if (event.keeps && trace.values[id.index()].kind == ir::ValueKind::Tensor)
    return takeTensors(context, event, result.get());
  if (aten::isTensor(result.get())) context.values.setTensor(id, result.get());
  context.objects[id.value] = std::move(result);
  return true;
}

// Commits what waits and builds the result. Everything is built first, while a failure still leaves
// no trace.
Outcome Plan::Impl::finish(Context& context, size_t event) const {
  std::vector<Pending> pending;
  if (!prepareEffects(context, commits.events.size(), pending)) return fail(context, event, true);
  Ref result = context.build(trace.events[event].recipes[0]);
  if (!result || !context.values.passWarningsOn()) return fail(context, event, true);
  if (!commit(context, pending, true)) return {Outcome::Kind::Raised, nullptr, event};
  if (context.state) context.state->dismiss();
  return {Outcome::Kind::Returned, result.release(), event};
}

// Runs the events from `event` on.
Outcome Plan::Impl::runFrom(Context& context, size_t event) const {
  try {
    return runSteps(context, event);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return fail(context, event, true);
  }
}

Outcome Plan::Impl::runSteps(Context& context, size_t event) const {
  Outcome outcome;
  auto drop = [&](size_t begin, size_t end) {
    for (size_t e = begin; e < end; e++)
      for (ValueId id : context.schedule->drops[e]) {
        context.values.clear(id);
        // What opaque calls gave is needed again if the call cannot begin anew.
        if (!context.objects.empty() && !context.committed && !stopsAfterCommit)
          context.objects.erase(id.value);
      }
  };
  for (const Step& step : context.schedule->steps) {
    if (step.begin < event) continue;
    switch (step.kind) {
      case Step::Kind::Operators:
        if (!runOperators(context, step, &outcome)) return outcome;
        break;
      case Step::Kind::Segment:
        if (!runSegment(context, step, &outcome)) return outcome;
        break;
      case Step::Kind::Guard:
        if (!isMet(context, step.begin)) return {Outcome::Kind::Exited, nullptr, step.begin};
        drop(step.begin, step.end);
        break;
      case Step::Kind::Opaque:
        if (!runOpaque(context, step, &outcome)) return outcome;
        drop(step.begin, step.end);
        break;
      case Step::Kind::Drop:
        drop(step.begin, step.end);
        break;
      case Step::Kind::Return:
        return finish(context, step.begin);
    }
  }
  PyErr_SetString(PyExc_SystemError, "glowplug: a trace without an end");
  return fail(context, event, true);
}

}  // namespace glowplug::replay
