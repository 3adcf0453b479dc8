// Sources and guards: where values come from and what is assumed of them.

#include <fmt/format.h>

#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::ObjectId;
using common::SourceId;
using ir::PredicateKind;
using ir::StepKind;

ObjectId Recorder::objectId(PyObject* value) { return recording_->objects.add(value); }

SourceId Recorder::child(SourceId parent, StepKind step, PyObject* key) {
  return provenance_.intern(trace(),
                            {step, parent, objectId(provenance_.canonical(key)), 0, epoch_});
}

SourceId Recorder::child(SourceId parent, StepKind step, int64_t index) {
  return provenance_.intern(trace(), {step, parent, ObjectId(), index, epoch_});
}

SourceId Recorder::pinned(PyObject* value) {
  SourceId known = provenance_.find(value);
  if (known.valid()) return known;
  SourceId source = provenance_.intern(trace(), {StepKind::Pinned, SourceId(), objectId(value), 0});
  provenance_.remember(value, source);
  return source;
}

void Recorder::addGuard(ir::Guard guard) {
  if (!provenance_.firstGuard(guard)) return;
  guard.since = epoch_;
  guard.site = site();
  trace().guards.push_back(guard);
}

void Recorder::guard(PredicateKind kind, SourceId source, PyObject* value) {
  ir::Guard guard;
  guard.kind = kind;
  guard.source = source;
  if (value) guard.object = objectId(value);
  addGuard(guard);
}

void Recorder::guardLength(SourceId source, Py_ssize_t length) {
  ir::Guard guard;
  guard.kind = PredicateKind::Length;
  guard.source = source;
  guard.number = length;
  addGuard(guard);
}

void Recorder::guardOther(PredicateKind kind, SourceId source, SourceId other) {
  ir::Guard guard;
  guard.kind = kind;
  guard.source = source;
  guard.other = other;
  addGuard(guard);
}

SourceId Recorder::sourceOf(PyObject* value) {
  SourceId known = provenance_.find(value);
  if (known.valid()) return known;
  // A pinned object needs no path: reads of it start at the object itself.
  if (isPinnable(value) && !provenance_.isFresh(value)) return pinned(value);
  return SourceId();
}

// The object at the source is the one that was found at `known`. It may be the same path, read
// again after a call that may have put another object there.
void Recorder::noteSame(SourceId source, SourceId known) {
  if (known != source || trace().sources[source.index()].since < epoch_)
    guardOther(PredicateKind::SameAs, source, known);
}

void Recorder::noteLoad(SourceId source, PyObject* value) {
  if (!active_) return;
  if (isConstant(value)) return guard(PredicateKind::ConstEq, source, provenance_.canonical(value));
  if (aten::isTensor(value)) return noteTensor(source, value);
  if (isPinnable(value)) {
    guard(PredicateKind::IdentityIs, source, value);
    pinned(value);
    return;
  }
  SourceId known = provenance_.find(value);
  if (known.valid()) {
    if (!provenance_.sameByNature(trace(), known, source)) noteSame(source, known);
    return;
  }
  if (provenance_.objectAt(source))
    return refuse("opaque_call", "a call has replaced an object that the program reads again");
  provenance_.remember(value, source, lifeAt(source));
  guard(PredicateKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(value)));
  // What a callable is bound to reaches the program as an argument, by whatever calls it.
  noteBound(value);
  if (PyObject_TypeCheck(value, wellKnown().partial)) notePartial(value);
}

void Recorder::noteTensor(SourceId source, PyObject* tensor) {
  if (!aten::isPlainTensor(tensor)) return refuse("tensor_subclass", Py_TYPE(tensor)->tp_name);
  SourceId known = provenance_.find(tensor);
  if (known.valid()) {
    noteSame(source, known);
    if (follow_) noteSecondInput(source, tensor);
    return;
  }
  if (ops_->find(tensor).valid())
    return refuse("unguardable",
                  "a tensor made in this call was found at a place that was not seen "
                  "to be written");
  // Another tensor was there before something unknown ran: this is the place as it is now.
  ir::Source now = trace().sources[source.index()];
  if (now.since < epoch_) {
    now.since = epoch_;
    source = SourceId(trace().sources.size());
    trace().sources.push_back(now);
  }
  common::ValueId value = ops_->addInput(tensor, source);
  provenance_.remember(tensor, source);
  ir::Event event;
  event.kind = ir::EventKind::Input;
  event.results.push_back(value);
  emit(std::move(event));
  ir::Guard guard;
  guard.kind = PredicateKind::TensorMeta;
  guard.source = source;
  guard.meta = trace().values[value.index()].meta;
  addGuard(guard);
}

// The replay that is followed had another tensor there, and so a number more.
void Recorder::noteSecondInput(SourceId source, PyObject* tensor) {
  common::ValueId first = ops_->find(tensor), second(trace().values.size());
  if (!first.valid() || !follow_->operators().isInput(second, source)) return;
  follow_->operators().noteSame(first, second);
  ir::Value value = trace().values[first.index()];
  value.source = source;
  trace().values.push_back(value);
  ir::Event event;
  event.kind = ir::EventKind::Input;
  event.results.push_back(second);
  emit(std::move(event));
}

// What a running function depends on besides its arguments: its code and defaults, globals, cells.
void Recorder::noteFunction(cpython::FrameView frame) {
  PyObject* function = frame.function();
  if (!function || !PyFunction_Check(function) || provenance_.isFresh(function)) return;
  SourceId source = pinned(function);
  if (!provenance_.firstEntry(function)) return;
  guard(PredicateKind::FunctionSame, source);
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  if (!provenance_.find(f->func_globals).valid())
    provenance_.remember(f->func_globals, child(source, StepKind::Globals));
  if (f->func_builtins && !provenance_.find(f->func_builtins).valid())
    provenance_.remember(f->func_builtins, child(source, StepKind::Builtins));
  if (f->func_closure)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_closure); i++) {
      PyObject* cell = PyTuple_GET_ITEM(f->func_closure, i);
      if (!provenance_.find(cell).valid())
        provenance_.remember(cell, child(source, StepKind::Closure, i));
    }
  auto noteDefault = [&](SourceId place, PyObject* value) {
    if (!isConstant(value) && !isPinnable(value) && !provenance_.find(value).valid())
      noteLoad(place, value);
  };
  if (f->func_defaults)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_defaults); i++)
      noteDefault(child(child(source, StepKind::Defaults), StepKind::TupleItem, i),
                  PyTuple_GET_ITEM(f->func_defaults, i));
  if (f->func_kwdefaults) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    SourceId dict = child(source, StepKind::Kwdefaults);
    while (PyDict_Next(f->func_kwdefaults, &position, &key, &value))
      noteLoad(child(dict, StepKind::DictItem, key), value);
  }
}

}  // namespace glowplug::trace
