// Running a plan.

#include "common/check.h"
#include "common/log.h"
#include "replay/plan_impl.h"

namespace glowplug::replay {

using common::ValueId;
using cpython::Ref;
using ir::Event;
using ir::EventKind;

Suspended::Suspended(std::unique_ptr<State> state) : state(std::move(state)) {}
Suspended::~Suspended() {
  if (state && state->context.random) state->context.random->restore();
}

Outcome Plan::run(PyObject* const* fetched, std::unique_ptr<Suspended>& suspended) {
  Context context(impl_->valueCapacity, impl_->trace.recipes.size());
  if (impl_->hasRandom) context.random = std::make_unique<aten::RandomState>();
  if (impl_->hasState) context.state = std::make_unique<aten::StateRestore>();
  impl_->bindInputs(context, fetched);
  return impl_->runFrom(context, 0, suspended);
}

Outcome Plan::resume(PyObject* const* fetched, std::unique_ptr<Suspended>& suspended) {
  std::unique_ptr<Suspended> taken = std::move(suspended);
  std::unique_ptr<Suspended::State> state = std::move(taken->state);
  state->context.memo.assign(impl_->trace.recipes.size(), Ref());
  if (impl_->hasState && !state->context.state)
    state->context.state = std::make_unique<aten::StateRestore>();
  impl_->bindInputs(state->context, fetched);
  return impl_->runFrom(state->context, state->event, suspended);
}

void Plan::Impl::bindInputs(Context& context, PyObject* const* fetched) const {
  context.fetched.clear();
  context.fetched.reserve(wanted.size());
  for (size_t i = 0; i < wanted.size(); i++) context.fetched.push_back(Ref::borrow(fetched[i]));
  // With one backend for all operators the tensors pass through as Python objects.
  bool allLowered = segments.size() == backends.size() && !backends.empty();
  for (const Ref& backend : backends) allLowered &= static_cast<bool>(backend);
  if (allLowered) return;
  for (const auto& [value, index] : inputs) context.values.setTensor(value, fetched[index]);
}

RecipeContext Plan::Impl::recipeContext(Context& context) const {
  return {trace, objects, [this, &context](ValueId id) { return valueObject(context, id); },
          [this, &context](common::SourceId id) {
            return Py_NewRef(context.fetched[wantedIndex.at(id.value)].get());
          }};
}

// New reference.
PyObject* Plan::Impl::valueObject(Context& context, ValueId id) const {
  const ir::Value& value = trace.values[id.index()];
  if (value.source.valid())
    return Py_NewRef(context.fetched[wantedIndex.at(value.source.value)].get());
  if (auto object = context.objects.find(id.value); object != context.objects.end())
    return Py_NewRef(object->second.get());
  return context.values.object(id);
}

int Plan::Impl::loweredSegmentAt(size_t event) const {
  int index = segmentOf[event];
  bool first = index >= 0 && segments[static_cast<size_t>(index)].begin == event;
  return first && static_cast<size_t>(index) < backends.size() &&
                 backends[static_cast<size_t>(index)]
             ? index
             : -1;
}

bool Plan::Impl::isMet(const Context& context, const Event& event) const {
  if (event.kind == EventKind::Sizes) return context.values.sizesAre(event.value, event.sizes);
  PyObject* expected = objects.get(event.expected);
  if (!expected) return false;
  if (auto object = context.objects.find(event.value.value); object != context.objects.end()) {
    PyObject* found = object->second.get();
    return Py_TYPE(found) == Py_TYPE(expected) &&
           PyObject_RichCompareBool(found, expected, Py_EQ) == 1;
  }
  return context.values.scalarIs(event.value, expected);
}

// An operator, opaque call or backend raised at `event`.
Outcome Plan::Impl::fail(Context& context, size_t event) const {
  if (!context.committed) {
    // Nothing has happened yet that the program would not do itself: it can run, and raise with the
    // user's own lines in the traceback.
    if (common::logs(common::Channel::Calls)) PyErr_WriteUnraisable(nullptr);
    PyErr_Clear();
    if (context.random) context.random->restore();
    return {Outcome::Kind::Retry, nullptr, event};
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!commitEffects(context, event)) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return {Outcome::Kind::Raised, nullptr, event};
}

bool Plan::Impl::runOps(Context& context, size_t begin, size_t end, Outcome* outcome) const {
  size_t failed = begin;
  int status = program->run(context.values, begin, end, &failed);
  size_t last = status == aten::OpProgram::Done ? end : failed + 1;
  for (size_t e = begin; e < last; e++) context.committed |= trace.events[e].writesInput;
  if (status == aten::OpProgram::Done) return true;
  if (status == aten::OpProgram::Diverged) {
    if (!context.committed) {
      if (context.random) context.random->restore();
      *outcome = {Outcome::Kind::Exited, nullptr, failed};
      return false;
    }
    PyErr_SetString(PyExc_RuntimeError,
                    "glowplug: an operator returned other tensors than recorded, after "
                    "a write that cannot be taken back");
  }
  *outcome = fail(context, failed);
  return false;
}

bool Plan::Impl::runSegment(Context& context, size_t index) const {
  const Segment& segment = segments[index];
  std::vector<PyObject*> arguments;
  std::vector<Ref> owned;
  arguments.reserve(segment.inputs.size());
  for (ValueId id : segment.inputs) {
    const ir::Value& value = trace.values[id.index()];
    if (value.source.valid()) {
      arguments.push_back(context.fetched[wantedIndex.at(value.source.value)].get());
      continue;
    }
    owned.push_back(Ref::steal(context.values.object(id)));
    if (!owned.back()) return false;
    arguments.push_back(owned.back().get());
  }
  for (size_t e = segment.begin; e < segment.end; e++)
    context.committed |= trace.events[e].writesInput;
  Ref result = Ref::steal(
      PyObject_Vectorcall(backends[index].get(), arguments.data(), arguments.size(), nullptr));
  if (!result) return false;
  Ref items = Ref::steal(PySequence_Fast(result.get(), "a backend must return a tuple or list of tensors"));
  if (!items) return false;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(items.get());
  if (static_cast<size_t>(count) != segment.outputs.size()) {
    PyErr_Format(PyExc_RuntimeError, "the backend returned %zd tensors where the graph has %zu outputs",
                 count, segment.outputs.size());
    return false;
  }
  for (size_t i = 0; i < segment.outputs.size(); i++) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
    if (!aten::isTensor(item)) {
      PyErr_Format(PyExc_TypeError, "the backend returned %.100s where the graph's output %zu is a tensor",
                   Py_TYPE(item)->tp_name, i);
      return false;
    }
    context.values.setTensor(segment.outputs[i], item);
  }
  return true;
}

bool Plan::Impl::callOpaque(Context& context, const Event& event) const {
  // What a log-only call prints is a snapshot, built apart from what is handed out later.
  RecipeMemo snapshot;
  if (event.logOnly) snapshot.resize(trace.recipes.size());
  RecipeContext recipes = recipeContext(context);
  std::vector<Ref> owned;
  std::vector<PyObject*> arguments;
  for (common::RecipeId id : event.recipes) {
    owned.push_back(build(recipes, event.logOnly ? snapshot : context.memo, id));
    if (!owned.back()) return false;
    arguments.push_back(owned.back().get());
  }
  PyObject* keywords = event.keywords.valid() ? objects.get(event.keywords) : nullptr;
  size_t named = keywords ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0;
  context.committed = true;
  Ref result = Ref::steal(PyObject_Vectorcall(arguments[0], arguments.data() + 1,
                                              arguments.size() - 1 - named, keywords));
  if (!result) return false;
  if (event.results.empty()) return true;
  if (aten::isTensor(result.get()))
    context.values.setTensor(event.results[0], result.get());
  else
    context.objects[event.results[0].value] = std::move(result);
  return true;
}

// Commits the effects of events before `before` that have not been committed yet.
bool Plan::Impl::commitEffects(Context& context, size_t before) const {
  RecipeContext recipes = recipeContext(context);
  for (; context.committedEffects < effects.size(); context.committedEffects++) {
    size_t at = effects[context.committedEffects];
    if (at >= before) return true;
    const Event& event = trace.events[at];
    std::vector<Ref> operands;
    for (common::RecipeId id : event.recipes) {
      operands.push_back(build(recipes, context.memo, id));
      if (!operands.back()) return false;
    }
    context.committed = true;
    if (!doEffect(event, operands)) return false;
  }
  return true;
}

// Runs the events from `event` on.
Outcome Plan::Impl::runFrom(Context& context, size_t event, std::unique_ptr<Suspended>& suspended) {
  const auto& events = trace.events;
  int lowered = -1;  // segment that a backend has run and whose events are being passed
  for (size_t e = event; e < events.size();) {
    if (int segment = loweredSegmentAt(e); segment >= 0) {
      if (!runSegment(context, static_cast<size_t>(segment))) return fail(context, e);
      lowered = segment;
    }
    bool passed = lowered >= 0 && segmentOf[e] == lowered;
    switch (events[e].kind) {
      case EventKind::Input:
      case EventKind::State:
      case EventKind::Op: {
        size_t end = e + 1;
        if (passed) {
          // Only operators that hand a number to Python are left to do.
          ValueId first = events[e].results.empty() ? ValueId() : events[e].results[0];
          bool scalar = events[e].kind == EventKind::Op && first.valid() &&
                        trace.values[first.index()].kind == ir::ValueKind::Scalar;
          if (!scalar) {
            e = end;
            continue;
          }
        } else {
          while (end < events.size() && loweredSegmentAt(end) < 0 &&
                 (events[end].kind == EventKind::Op || events[end].kind == EventKind::State ||
                  events[end].kind == EventKind::Input))
            end++;
        }
        Outcome outcome;
        if (!runOps(context, e, end, &outcome)) return outcome;
        e = end;
        continue;
      }
      case EventKind::Sizes:
      case EventKind::Fork:
        if (!isMet(context, events[e])) {
          auto state = std::make_unique<Suspended::State>(
              Suspended::State{std::move(context), this, e});
          suspended = std::make_unique<Suspended>(std::move(state));
          return {Outcome::Kind::Exited, nullptr, e};
        }
        break;
      case EventKind::Opaque:
        if (!events[e].logOnly && !commitEffects(context, e)) return fail(context, e);
        if (!callOpaque(context, events[e])) return fail(context, e);
        break;
      case EventKind::Effect:
        break;  // waits
      case EventKind::Return: {
        if (!commitEffects(context, e)) return {Outcome::Kind::Raised, nullptr, e};
        Ref result = build(recipeContext(context), context.memo, events[e].recipes[0]);
        if (context.state) context.state->dismiss();
        if (!result) return {Outcome::Kind::Raised, nullptr, e};
        return {Outcome::Kind::Returned, result.release(), e};
      }
    }
    for (ValueId id : drops[e]) context.values.clear(id);
    e++;
  }
  GP_CHECK(false, "a trace ends with Return");
  return {};
}

}  // namespace glowplug::replay
