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

#include <algorithm>
#include <array>
#include <string_view>

#include "cpython/constant.h"
#include "cpython/error_pause.h"
#include "cpython/frame_watch.h"
#include "cpython/lru_cache.h"
#include "cpython/object_contents.h"
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

// Objects of numpy that hold no tensor and share no memory with one.
bool holdsNoTensor(PyObject* object) {
  constexpr std::array<std::string_view, 5> kNames = {"numpy.ufunc", "numpy.dtype", "numpy.number",
                                                      "numpy.bool", "numpy.character"};
  if (!std::string_view(Py_TYPE(object)->tp_name).starts_with("numpy.")) return false;
  PyObject* mro = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (std::find(kNames.begin(), kNames.end(), type->tp_name) != kNames.end()) return true;
  }
  return false;
}

const std::array<PyObject*, 2>& textMethods() {
  static const std::array<PyObject*, 2> names = {PyUnicode_InternFromString("__str__"),
                                                 PyUnicode_InternFromString("__repr__")};
  return names;
}

// str() of the object is a method of the program's own.
bool makesOwnText(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!isPythonClass(type)) return false;
  PyObject* method = _PyType_Lookup(type, textMethods()[0]);
  // object's asks for the other one.
  if (method == _PyType_Lookup(&PyBaseObject_Type, textMethods()[0]))
    method = _PyType_Lookup(type, textMethods()[1]);
  return method && PyFunction_Check(method) && cpython::isOfProgram(PyFunction_GET_GLOBALS(method));
}

}  // namespace

// Objects of the program's own that are described by now may be held by what was called: they are
// from outside from here on.
bool Recorder::escape() {
  std::vector<std::pair<PyObject*, RecipeId>> made = madeIn(described_);
  std::sort(made.begin(), made.end(), [](auto& a, auto& b) { return a.second < b.second; });
  for (const auto& [object, id] : made)
    provenance_.remember(object,
                         child(SourceId(), StepKind::Built, static_cast<int64_t>(id.index())),
                         Provenance::Life::Call);
  std::erase_if(described_.fresh,
                [&](const Ref& object) { return provenance_.find(object.get()).valid(); });
  return !made.empty();
}

// The objects with a state that the call has made, and nobody else has been given so far.
std::vector<std::pair<PyObject*, RecipeId>> Recorder::madeIn(const Described& described) const {
  std::vector<std::pair<PyObject*, RecipeId>> made;
  for (const auto& [object, id] : described.ids)
    if (isMutable(recording_->trace.recipes[id.index()].kind) && !provenance_.find(object).valid())
      made.emplace_back(object, id);
  return made;
}

void Recorder::describeCall(ir::Event& event, PyObject* callee, const Arguments& args) {
  event.recipes.push_back(recipe(callee));
  // What the callee is bound to stands among the arguments for the models' sake.
  size_t first = args.count() && boundTo(callee) == args.values[0] ? 1 : 0;
  for (size_t i = first; i < args.count(); i++) event.recipes.push_back(recipe(args.values[i]));
  if (args.kwnames && PyTuple_GET_SIZE(args.kwnames)) event.keywords = objectId(args.kwnames);
}

// For a callee that looks at its arguments and lets go of them: what they become later is described
// anew. Gives what has been described for the call.
Recorder::Described Recorder::describeApart(ir::Event& event, PyObject* callee,
                                            const Arguments& args) {
  Described outer;
  std::swap(outer, described_);
  describeCall(event, callee, args);
  std::swap(outer, described_);
  return outer;
}

bool Recorder::passesTensors(const ir::Event& event, PyObject* callee,
                             const Arguments& args) const {
  std::vector<RecipeId> open;
  const size_t bound = args.count() + 1 - event.recipes.size();
  for (size_t i = 0; i < event.recipes.size(); i++)
    if (!holdsNoTensor(i ? args.values[i - 1 + bound] : callee)) open.push_back(event.recipes[i]);
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
// programRan: whether code of the program's own has run in it.
PyObject* Recorder::callApart(const Invoke& invoke, bool* programRan) {
  ops_->syncState();
  PyObject* result = nullptr;
  if (follow_ && follow_->opaquePending()) {
    *programRan = follow_->programRan();
    result = follow_->takeOpaque();
  } else {
    EvaluationPause pause;
    aten::OpRecorder::Pause opsPause;
    cpython::FrameWatch watch;
    result = invoke();
    *programRan = watch.ranProgram();
  }
  ops_->acceptState();
  return result;
}

// What has been described apart may have been kept or changed all the same.
void Recorder::handOver(Described given) {
  described_.ids.insert(given.ids.begin(), given.ids.end());
  std::move(given.fresh.begin(), given.fresh.end(), std::back_inserter(described_.fresh));
  escape();
}

// The objects that a replay had built for the call, and the call may have changed, are the
// program's. Also where the call has raised: its error stays set.
bool Recorder::takeBuilt() {
  cpython::ErrorPause pause;
  cpython::Twins twins;
  for (const auto& [object, id] : described_.ids)
    if (PyObject* replayed = follow_->built(id)) twins[replayed] = object;
  for (const auto& [replayed, object] : twins)
    if (!cpython::takeOver(object, replayed, twins)) return false;
  return true;
}

// An opaque call that raised ends the recording; the program goes on with its error.
PyObject* Recorder::noteRaised(PyObject* callee, const Arguments& args) {
  // In the replay that is followed.
  if (Ref missed = cpython::takeMissedResult()) {
    refuse("cache_filled", calleeName(args.values[0]));
    return missed.release();
  }
  cpython::ErrorPause pause;
  refuse("call_raised", calleeName(callee));
  return nullptr;
}

// Whatever is read from now on is guarded anew, as it is after the call.
void Recorder::mayHaveChangedAnything() {
  provenance_.forgetWhatMayChange();
  withGradient_.clear();
  epoch_ = static_cast<int64_t>(trace().events.size()) + 1;
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
  Described given;
  if (kind == OpaqueKind::Unknown || event.keeps) {
    describeCall(event, callee, args);
    keptFresh_ |= escape() && event.keeps;
  } else {
    given = describeApart(event, callee, args);
  }
  if (!active_) return callAfterRefusal(invoke);
  const Holds before = event.keeps ? Holds() : holdsOnBuilt(given);
  bool programRan = false;
  Ref result = Ref::steal(callApart(invoke, &programRan));
  const bool byProgram = ir::keepsToItself(event) && programRan;
  if (result && (kind == OpaqueKind::Unknown || byProgram)) noteKept(before);
  if (byProgram) {
    // As a call of which nothing is known.
    kind = OpaqueKind::Unknown;
    reason = "known_call_ran_code";
    event.logOnly = event.known = false;
    handOver(std::move(given));
  }
  if (kind == OpaqueKind::Unknown && follow_ && !takeBuilt()) return nullptr;
  if (!result) return noteRaised(callee, args);
  if (kind == OpaqueKind::Unknown) {
    mayHaveChangedAnything();
  } else if (event.logOnly && aten::isTensor(result.get())) {
    event.known = true;
    event.logOnly = false;
  } else if (event.known && !passesTensors(event, callee, args) && !aten::isTensor(result.get())) {
    event.known = false;
    event.logOnly = true;
  }
  if (ir::breaksGraph(event) && active_)
    calls_.emplace_back(trace().events.size(), refusal(reason, calleeName(callee)));
  Ref noted = noteResult(std::move(event), std::move(result));
  noteOrigin(callee, noted.get());
  return noted.release();
}

// print() makes texts of what it is given. Where a method of the program's own makes the first one,
// that is evaluated like any other code and its text is printed; later ones are made after the
// first has been written.
PyObject* Recorder::callPrint(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  const bool convert = args.positional && makesOwnText(args.values[0]);
  if (!convert) return callOpaque(callee, args, invoke, OpaqueKind::Output, "opaque_call");
  for (PyObject* name : textMethods()) typeAttr(Py_TYPE(args.values[0]), name);
  Ref text = Ref::steal(PyObject_Str(args.values[0]));
  if (!text) return nullptr;
  std::vector<PyObject*> values(args.values, args.values + args.count());
  values[0] = text.get();
  const Arguments printed{values.data(), args.positional, args.kwnames};
  const Invoke print = [&] {
    return PyObject_Vectorcall(callee, values.data(), args.positional, args.kwnames);
  };
  return callOpaque(callee, printed, print, OpaqueKind::Output, "opaque_call");
}

// Numbers that are others each time: the time, random ones; and what was found to be garbage.
void Recorder::noteOrigin(PyObject* callee, PyObject* result) {
  auto tracked = scalars_.find(result);
  if (tracked == scalars_.end()) return;
  const CalleeKind kind = calleeModel(callee).kind;
  const bool clock =
      kind == CalleeKind::Clock || kind == CalleeKind::LogOnly || kind == CalleeKind::Known;
  if (kind == CalleeKind::Collect) collected_.insert(tracked->second.value);
  if (clock && PyFloat_CheckExact(result)) clocks_.insert(tracked->second.value);
}

// What was found to be garbage can neither leave the call nor decide anything.
bool Recorder::refusesGarbage(ValueId value) {
  if (!collected_.count(value.value)) return false;
  refuse("unguardable", "what the garbage collector found: a replay makes other garbage");
  return true;
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
