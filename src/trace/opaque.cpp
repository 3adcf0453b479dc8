// Opaque calls: what cannot be looked into is called again at each replay.
//
// What such a call returns is a value of the trace. A number or text stays a value until the
// program decides something by it: computing with it records the computation (scalars.cpp). Of
// anything else what the program looks at is guarded, and the guards are asked at the replay when
// the call has returned. A call of which nothing is known may change whatever the program can
// reach: what the trace takes to be so is asked again after it (replay/late_checks.cpp), what was
// written before may not be read after it, and fresh objects that it was given are from then on
// objects from outside.

#include <fmt/format.h>

#include "cpython/constant.h"
#include "cpython/lru_cache.h"
#include "trace/evaluator.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::RecipeId;
using common::SourceId;
using common::ValueId;
using cpython::Ref;
using ir::RecipeKind;
using ir::StepKind;

namespace {

bool isMutable(RecipeKind kind) {
  switch (kind) {
    case RecipeKind::List:
    case RecipeKind::Dict:
    case RecipeKind::OrderedDict:
    case RecipeKind::DefaultDict:
    case RecipeKind::Set:
    case RecipeKind::Deque:
    case RecipeKind::Object:
    case RecipeKind::Cell:
    case RecipeKind::Function:
    case RecipeKind::Partial:
      return true;
    default:
      return false;
  }
}

// Gives a fresh container or object the contents of the one that the replay had built for the call.
bool adopt(PyObject* made, PyObject* replayed) {
  if (made == replayed || Py_TYPE(made) != Py_TYPE(replayed)) return true;
  if (PyList_Check(made)) return PyList_SetSlice(made, 0, PyList_GET_SIZE(made), replayed) == 0;
  if (PyDict_Check(made)) {
    PyDict_Clear(made);
    if (PyDict_Update(made, replayed) < 0) return false;
  } else if (PySet_Check(made)) {
    if (PySet_Clear(made) < 0 || _PySet_Update(made, replayed) < 0) return false;
  }
  PyObject** dict = _PyObject_GetDictPtr(made);
  PyObject** other = _PyObject_GetDictPtr(replayed);
  if (!dict || !*dict || !other || !*other) return true;
  PyDict_Clear(*dict);
  return PyDict_Update(*dict, *other) == 0;
}

}  // namespace

// Objects of the program's own that are described by now may be held by what was called: they are
// from outside from here on.
bool Recorder::escape() {
  std::vector<std::pair<PyObject*, RecipeId>> made;
  for (const auto& [object, id] : described_.ids)
    if (isMutable(trace().recipes[id.index()].kind) && !provenance_.find(object).valid())
      made.emplace_back(object, id);
  std::sort(made.begin(), made.end(), [](auto& a, auto& b) { return a.second < b.second; });
  for (const auto& [object, id] : made)
    provenance_.remember(object,
                         child(SourceId(), StepKind::Built, static_cast<int64_t>(id.index())),
                         Provenance::Life::Call);
  std::erase_if(described_.fresh,
                [&](const Ref& object) { return provenance_.find(object.get()).valid(); });
  return !made.empty();
}

void Recorder::describeCall(ir::Event& event, PyObject* callee, const Arguments& args) {
  event.recipes.push_back(recipe(callee));
  // What the callee is bound to stands among the arguments for the models' sake.
  size_t first = args.count() && boundTo(callee) == args.values[0] ? 1 : 0;
  for (size_t i = first; i < args.count(); i++) event.recipes.push_back(recipe(args.values[i]));
  if (args.kwnames && PyTuple_GET_SIZE(args.kwnames)) event.keywords = objectId(args.kwnames);
}

// For a callee that looks at its arguments and lets go of them: what they become later is described
// anew.
void Recorder::describeApart(ir::Event& event, PyObject* callee, const Arguments& args) {
  Described outer;
  std::swap(outer, described_);
  describeCall(event, callee, args);
  std::swap(outer, described_);
}

bool Recorder::passesTensors(const ir::Event& event) const {
  std::vector<RecipeId> open = event.recipes;
  std::unordered_set<RecipeId> seen;
  while (!open.empty()) {
    RecipeId id = open.back();
    open.pop_back();
    if (!id.valid() || !seen.insert(id).second) continue;
    const ir::Recipe& at = recording_->trace.recipes[id.index()];
    // What comes from outside may hold tensors.
    if (at.kind == RecipeKind::Source) return true;
    if (at.value.valid() &&
        recording_->trace.values[at.value.index()].kind == ir::ValueKind::Tensor)
      return true;
    open.insert(open.end(), at.children.begin(), at.children.end());
  }
  return false;
}

// Runs the callee for real, out of the recorder's sight; or takes what the replay has got from it.
PyObject* Recorder::callApart(const Invoke& invoke) {
  ops_->syncState();
  PyObject* result = nullptr;
  if (follow_ && follow_->opaquePending()) {
    result = follow_->takeOpaque();
  } else {
    EvaluationPause pause;
    aten::OpRecorder::Pause opsPause;
    result = invoke();
  }
  ops_->acceptState();
  return result;
}

PyObject* Recorder::callOpaque(PyObject* callee, const Arguments& args, const Invoke& invoke,
                               OpaqueKind kind, const char* reason) {
  endResults();
  if (!active_) return callAfterRefusal(invoke);
  ir::Event event;
  event.kind = ir::EventKind::Opaque;
  event.logOnly = kind == OpaqueKind::Output;
  event.known = kind == OpaqueKind::Known;
  event.keeps = event.pure = kind == OpaqueKind::Keeps;
  // Effects come before it; the objects in them are described as they are now.
  if (!pendingEffects_.empty() && !event.keeps) {
    resolveEffects();
    escape();
  }
  if (kind == OpaqueKind::Unknown || event.keeps) {
    describeCall(event, callee, args);
    keptFresh_ |= escape() && event.keeps;
  } else {
    describeApart(event, callee, args);
  }
  if (!active_) return callAfterRefusal(invoke);
  Ref result = Ref::steal(callApart(invoke));
  if (!result) {
    // In the replay that is followed.
    if (Ref missed = cpython::takeMissedResult()) {
      refuse("cache_filled", calleeName(args.values[0]));
      return missed.release();
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    refuse("call_raised", calleeName(callee));
    PyErr_Restore(type, value, traceback);
    return nullptr;
  }
  if (kind == OpaqueKind::Unknown) {
    for (const auto& [object, id] : described_.ids) {
      PyObject* replayed = follow_ ? follow_->built(id) : nullptr;
      if (replayed && isMutable(trace().recipes[id.index()].kind) && !adopt(object, replayed))
        return nullptr;
    }
  }
  if (event.logOnly && aten::isTensor(result.get())) {
    event.known = true;
    event.logOnly = false;
  } else if (event.known && !passesTensors(event) && !aten::isTensor(result.get())) {
    event.known = false;
    event.logOnly = true;
  }
  // Whatever is read from now on is guarded anew, as it is after this call.
  if (kind == OpaqueKind::Unknown) {
    provenance_.forgetWhatMayChange();
    withGradient_.clear();
    epoch_ = static_cast<int64_t>(trace().events.size()) + 1;
  }
  if (ir::breaksGraph(event) && active_)
    calls_.emplace_back(trace().events.size(), refusal(reason, calleeName(callee)));
  return noteResult(std::move(event), std::move(result)).release();
}

// What the program gets from the call. A number or text is handed on as an object of its own, whose
// identity carries it to where it is used.
Ref Recorder::noteResult(ir::Event event, Ref result) {
  ValueId value(trace().values.size());
  if (aten::isTensor(result.get())) {
    if (!aten::isPlainTensor(result.get())) {
      refuse("tensor_subclass", Py_TYPE(result.get())->tp_name);
      return result;
    }
    ValueId tensor = ops_->addResult(result.get());
    event.results.push_back(tensor);
    emit(std::move(event));
    ir::Guard meta;
    meta.kind = ir::PredicateKind::TensorMeta;
    meta.source = child(SourceId(), StepKind::Result, static_cast<int64_t>(tensor.index()));
    meta.meta = trace().values[tensor.index()].meta;
    if (active_) addGuard(meta);
    return result;
  }
  bool keeps = event.keeps;
  bool clock = event.logOnly && PyFloat_CheckExact(result.get());
  trace().values.push_back({ir::ValueKind::Object, SourceId(), common::MetaId(), false});
  event.results.push_back(value);
  emit(std::move(event));
  if (!active_) return result;
  SourceId source = child(SourceId(), StepKind::Result, static_cast<int64_t>(value.index()));
  Ref copy = Ref::steal(cpython::distinctCopy(result.get()));
  if (!copy) {
    if (keeps) kept_.insert(result.get());
    noteLoad(source, result.get());
    return result;
  }
  guard(ir::PredicateKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(result.get())));
  trackScalar(copy.get(), value);
  if (clock) clocks_.insert(value.value);
  return copy;
}

// Operators and builtin functions on objects of unknown classes in C.
PyObject* Recorder::callForeign(PyObject* function, std::initializer_list<PyObject*> operands) {
  Arguments args{operands.begin(), operands.size(), nullptr};
  PyObject* result = callOpaque(
      function, args,
      [&] { return PyObject_Vectorcall(function, operands.begin(), operands.size(), nullptr); },
      foreignKind(operands.begin(), operands.size()), "opaque_call");
  return result;
}

// Arrays of numpy keep to themselves; of other classes nothing is known.
Recorder::OpaqueKind Recorder::foreignKind(PyObject* const* operands, size_t count) const {
  for (size_t i = 0; i < count; i++) {
    if (isForeign(operands[i]) && !keepsToItself(Py_TYPE(operands[i]))) return OpaqueKind::Unknown;
  }
  return OpaqueKind::Known;
}

bool Recorder::anyForeign(const Arguments& args) const {
  for (size_t i = 0; i < args.count(); i++)
    if (isForeign(args.values[i])) return true;
  return false;
}

}  // namespace glowplug::trace
