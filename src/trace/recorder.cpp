#include "trace/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "cpython/error_pause.h"
#include "cpython/modules.h"
#include "trace/evaluator.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

namespace {

// No collections by count while any thread records, in a way that the program does not see: the
// collector stays enabled.
class CollectorPause {
 public:
  CollectorPause() {
    if (recordings()++) return;
    static PyObject* never = Py_BuildValue("(iii)", INT_MAX, 10, 10);
    before() = call("get_threshold", nullptr);
    if (before()) call("set_threshold", never);
    PyErr_Clear();
  }
  ~CollectorPause() {
    if (--recordings()) return;
    cpython::ErrorPause pause;
    Ref now = call("get_threshold", nullptr);
    bool ours = now && PyLong_AsLong(PyTuple_GET_ITEM(now.get(), 0)) == INT_MAX;
    if (ours && before()) call("set_threshold", before().get());
    PyErr_Clear();
  }

 private:
  static size_t& recordings() {
    static size_t count = 0;
    return count;
  }
  static Ref& before() {
    static auto* threshold = new Ref();
    return *threshold;
  }
  static Ref call(const char* name, PyObject* args) {
    Ref gc = cpython::importModule("gc");
    Ref function = gc ? Ref::steal(PyObject_GetAttrString(gc.get(), name)) : Ref();
    return function ? Ref::steal(PyObject_CallObject(function.get(), args)) : Ref();
  }
};

}  // namespace

Recorder::Recorder(std::string name, Limits limits)
    : recording_(std::make_shared<Recording>()), limits_(limits) {
  recording_->trace.name = std::move(name);
  ops_ = std::make_unique<aten::OpRecorder>(recording_->trace, recording_->ops, *this);
}

Recorder::~Recorder() = default;

// From here on nothing is noted; the program goes on undisturbed.
void Recorder::refuse(const char* reason, std::string detail) {
  if (!active_) return;
  active_ = false;
  refusal_ = refusal(reason, std::move(detail));
  stopping_ = limits_.undoable && !common::mayPass(refusal_->reason);
}

// The program is not to go on. It may catch this, and meets it again at its next step.
void Recorder::stop() { PyErr_SetString(PyExc_RuntimeError, refusal_->text().c_str()); }

void Recorder::undo() {
  cpython::ErrorPause pause;
  if (!undo_.undo()) PyErr_WriteUnraisable(nullptr);
  ops_->restoreWritten();
}

// A reason, at the line that runs now.
common::Refusal Recorder::refusal(const char* reason, std::string detail) const {
  SiteIdText where = siteText();
  auto known = common::reasonNamed(reason);
  return {known.value_or(common::Reason::internal_error), std::move(detail), where.file,
          where.line};
}

Recorder::SiteIdText Recorder::siteText() const {
  if (frames_.empty()) return {};
  cpython::FrameView frame(frames_.back());
  PyCodeObject* code = frame.code();
  auto text = [](PyObject* value) {
    const char* chars = PyUnicode_AsUTF8(value);
    return std::string(chars ? chars : "");
  };
  return {text(code->co_filename), text(code->co_qualname), frame.line()};
}

common::SiteId Recorder::site() {
  if (frames_.empty()) return {};
  cpython::FrameView frame(frames_.back());
  auto key = std::pair<PyCodeObject*, int>{frame.code(), frame.instruction()};
  auto [it, added] = sites_.emplace(key, common::SiteId(trace().sites.size()));
  if (added) {
    SiteIdText text = siteText();
    trace().sites.push_back({text.file, text.function, text.line});
  }
  return it->second;
}

void Recorder::emit(ir::Event event) {
  if (!active_) return;
  if (trace().events.size() >= limits_.events)
    return refuse("event_limit", fmt::format("more than {} events", limits_.events));
  event.site = site();
  if (ir::mayStop(event) && committing_ && ops_->reshapedFresh())
    return refuse("reshaped_in_place", "before a point where the program may go another way");
  if (ir::mayStop(event) && committing_ && keptFresh_)
    return refuse("kept_by_graph", "before a point where the program may go another way");
  // From the first event on that cannot be taken back, a replay that stops has to hand on what
  // lives.
  committing_ |= ir::cannotBeTakenBack(event);
  if (committing_)
    for (common::ValueId value : ops_->takeDead())
      event.dead.push_back(static_cast<int64_t>(value.index()));
  trace().events.push_back(std::move(event));
}

void Recorder::bindRoots(PyObject* callee, PyObject* const* args, size_t positional,
                         PyObject* kwnames) {
  // Proxies of tracers decide themselves what torch's functions do with them.
  static PyObject* protocol = PyUnicode_InternFromString("__torch_function__");
  size_t count = positional + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  for (size_t i = 0; i < count; i++)
    if (!aten::isTensor(args[i]) && _PyType_Lookup(Py_TYPE(args[i]), protocol))
      return refuse("tensor_subclass", Py_TYPE(args[i])->tp_name);
  SourceId root = child(SourceId(), StepKind::Callee);
  noteLoad(root, callee);
  if (PyMethod_Check(callee)) {
    noteLoad(child(root, StepKind::MethodFunc), PyMethod_GET_FUNCTION(callee));
    noteLoad(child(root, StepKind::MethodSelf), PyMethod_GET_SELF(callee));
  }
  for (size_t i = 0; i < positional; i++)
    noteLoad(child(SourceId(), StepKind::Arg, static_cast<int64_t>(i)), args[i]);
  guardApart(args, positional);
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < named; i++)
    noteLoad(child(SourceId(), StepKind::Kwarg, PyTuple_GET_ITEM(kwnames, i)),
             args[positional + i]);
}

// A replay that is followed counts tensors as the recording did: two arguments stay two, although
// nothing may have been done with one of them.
void Recorder::guardApart(PyObject* const* args, size_t count) {
  constexpr size_t kMostTensors = 8;
  std::vector<PyObject*> tensors;
  for (size_t i = 0; i < count && tensors.size() < kMostTensors; i++) {
    SourceId source = aten::isTensor(args[i]) ? provenance_.find(args[i]) : SourceId();
    if (!source.valid() || std::count(tensors.begin(), tensors.end(), args[i])) continue;
    for (PyObject* other : tensors)
      guardOther(PredicateKind::NotSameAs, source, provenance_.find(other));
    tensors.push_back(args[i]);
  }
}

PyObject* Recorder::record(PyObject* callee, PyObject* const* args, size_t positional,
                           PyObject* kwnames) {
  active_ = true;
  recording_->state.emplace();
  if (limits_.undoable) ops_->keepWritten();
  wellKnown();
  startAudit();
  bindRoots(callee, args, positional, kwnames);
  Ref result;
  {
    // A recording keeps thousands of small objects; they must not set off collections that find
    // nothing.
    CollectorPause collector;
    EvaluationScope scope(*this);
    ops_->start();
    if (follow_) ops_->follow(follow_->operators());
    result = Ref::steal(call(callee, args, positional, kwnames));
    ops_->stop();
  }
  if (!result) {
    refuse("exception", Py_TYPE(PyErr_Occurred())->tp_name);
  } else if (active_) {
    finish(result.get());
  }
  active_ = false;
  if (refusal_) recording_.reset();
  return result.release();
}

void Recorder::finish(PyObject* result) {
  if (!recording_->state->matches()) return refuse("state_left", recording_->state->difference());
  for (const auto& [variable, before] : contextVariables_) {
    PyObject* now = nullptr;
    if (PyContextVar_Get(variable.get(), nullptr, &now) < 0) PyErr_Clear();
    Ref held = Ref::steal(now);
    if (now != before.get()) return refuse("state_left", "a context variable");
  }
  ops_->syncFlags();
  ops_->syncState();
  ir::Event event;
  event.kind = ir::EventKind::Return;
  event.recipes.push_back(recipe(result));
  resolveEffects();
  if (!active_) return;
  emit(std::move(event));
  findBreaks();
}

// A call broke the graph if there are operators on both sides of it.
void Recorder::findBreaks() {
  bool open = false;  // operators since the last break
  size_t next = 0;
  std::optional<common::Refusal> waiting;
  for (size_t e = 0; e < trace().events.size(); e++) {
    if (next < calls_.size() && calls_[next].first == e) {
      if (open && !waiting) waiting = calls_[next].second;
      next++;
    }
    if (trace().events[e].kind != ir::EventKind::Op) continue;
    if (waiting) breaks_.push_back(*waiting);
    waiting.reset();
    open = true;
  }
}

// --- frames

void Recorder::enterFrame(cpython::FrameView frame, bool resumed) {
  frames_.push_back(frame.raw());
  if (!active_ || resumed) return;
  noteFunction(frame);
  auditArguments(frame);
}

void Recorder::leaveFrame(cpython::FrameView frame, PyObject*, bool) {
  if (!frames_.empty() && frames_.back() == frame.raw()) frames_.pop_back();
}

// The default evaluator takes the frame over: nothing of it is seen.
void Recorder::delegateFrame(cpython::FrameView) { refuse("tracer_active", "set inside the call"); }

void Recorder::madeFunction(PyObject* function) {
  if (active_) provenance_.addFresh(function);
}

// --- names

PyObject* Recorder::loadGlobal(cpython::FrameView frame, PyObject* name) {
  endBefore();
  PyObject* result = Operations::loadGlobal(frame, name);
  if (!active_ || !result) return result;
  PyObject* globals = frame.globals();
  if (!provenance_.firstGlobal(globals, name)) return result;
  noteGlobal(globals, frame.builtins(), name, result);
  return audited(result, "global", name);
}

void Recorder::noteGlobal(PyObject* globals, PyObject* builtins, PyObject* name, PyObject* value) {
  SourceId source = provenance_.find(globals);
  if (!source.valid()) return;
  if (PyDict_GetItemWithError(globals, name)) {
    if (!isWritten(globals, name)) noteLoad(child(source, StepKind::DictItem, name), value);
    return;
  }
  guard(PredicateKind::Missing, source, provenance_.canonical(name));
  SourceId builtinsSource = provenance_.find(builtins);
  if (builtinsSource.valid()) noteLoad(child(builtinsSource, StepKind::DictItem, name), value);
}

PyObject* Recorder::loadName(cpython::FrameView frame, PyObject* name) {
  PyObject* result = Operations::loadName(frame, name);
  if (!active_ || !result) return result;
  PyObject* locals = frame.locals();
  if (locals && locals != frame.globals()) {
    int found = PyMapping_HasKey(locals, name);
    if (found) return result;
  }
  noteGlobal(frame.globals(), frame.builtins(), name, result);
  return result;
}

int Recorder::storeName(cpython::FrameView frame, PyObject* name, PyObject* value) {
  if (active_ && frame.locals() == frame.globals()) return storeGlobal(frame, name, value);
  return Operations::storeName(frame, name, value);
}

int Recorder::storeGlobal(cpython::FrameView frame, PyObject* name, PyObject* value) {
  if (stopping_) return stop(), -1;
  if (!active_) return Operations::storeGlobal(frame, name, value);
  PyObject* globals = frame.globals();
  if (provenance_.find(globals).valid()) {
    beforeWrite(globals);
    wroteKey(globals, name);
  }
  int status = Operations::storeGlobal(frame, name, value);
  if (status == 0 && provenance_.find(globals).valid()) {
    if (value)
      emitEffect(ir::EffectKind::SetItem, {globals, name, value});
    else
      emitEffect(ir::EffectKind::DelItem, {globals, name});
  }
  return status;
}

PyObject* Recorder::loadCell(PyObject* cell) {
  endBefore();
  PyObject* result = Operations::loadCell(cell);
  if (!active_) return result;
  SourceId source = provenance_.find(cell);
  if (!source.valid() || written(cell)) return result;
  if (result)
    noteLoad(child(source, StepKind::CellContents), result);
  else
    guard(PredicateKind::Unset, source);
  return result;
}

void Recorder::storeCell(PyObject* cell, PyObject* value) {
  if (active_ && provenance_.find(cell).valid()) {
    if (limits_.undoable) undo_.noteCell(cell);
    provenance_.startWriting(cell, Ref()).whole = true;
    if (value)
      emitEffect(ir::EffectKind::SetCell, {cell, value});
    else
      emitEffect(ir::EffectKind::SetCell, {cell});
  }
  Operations::storeCell(cell, value);
}

// The import system is not looked into: a module that is imported stays, and running a module's
// body is not part of the program's result.
PyObject* Recorder::importName(cpython::FrameView frame, PyObject* name, PyObject* fromlist,
                               PyObject* level) {
  if (!active_) return Operations::importName(frame, name, fromlist, level);
  EvaluationPause pause;
  aten::OpRecorder::Pause opsPause;
  PyObject* module = Operations::importName(frame, name, fromlist, level);
  if (module && PyModule_Check(module)) pinned(module);
  return module;
}

PyObject* Recorder::importFrom(PyObject* module, PyObject* name) {
  if (!active_ || !PyModule_Check(module)) return Operations::importFrom(module, name);
  SourceId place = readAttr(module, name);
  PyObject* result = Operations::importFrom(module, name);
  if (result && place.valid()) noteLoad(place, result);
  return result;
}

// --- operators on values

void Recorder::onOp(ir::Event event) { emit(std::move(event)); }

void Recorder::onRefuse(const char* reason, const std::string& detail) { refuse(reason, detail); }

void Recorder::enterOperator() { pauses_.push_back(std::make_unique<EvaluationPause>()); }
void Recorder::leaveOperator() { pauses_.pop_back(); }

void Recorder::useSizes(PyObject* tensor) {
  if (!active_ || !ops_->isDataDependent(tensor)) return;
  common::ValueId value = ops_->find(tensor);
  if (!value.valid() || !sized_.insert(value.value).second) return;
  Ref shape = Ref::steal(PyObject_GetAttrString(tensor, "shape"));
  ir::Event event;
  event.kind = ir::EventKind::Sizes;
  event.value = value;
  for (Py_ssize_t i = 0; shape && i < PyTuple_GET_SIZE(shape.get()); i++)
    event.sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i)));
  emit(std::move(event));
}

bool Recorder::is(PyObject* left, PyObject* right) {
  if (active_ && left != right && !isConstant(left) && !isConstant(right)) {
    SourceId l = provenance_.find(left), r = provenance_.find(right);
    if (l.valid() && r.valid() && !isPinnable(left) && !isPinnable(right))
      guardOther(PredicateKind::NotSameAs, l, r);
  }
  return Operations::is(left, right);
}

PyObject* Recorder::compare(int op, PyObject* left, PyObject* right) {
  endBefore();
  if (!active_) return Operations::compare(op, left, right);
  PyObject* operands[] = {left, right};
  if (anyForeign({operands, 2, nullptr})) return callForeign(comparisonFunction(op), {left, right});
  if (computesScalar(operands, 2)) {
    PyObject* function = comparisonFunction(op);  // before the operator, which may raise
    return noteComputed(function, operands, 2, nullptr, Operations::compare(op, left, right));
  }
  deepRead(left);
  deepRead(right);
  if (left != right && !aten::isTensor(left) && !aten::isTensor(right)) is(left, right);
  PyObject* result = Operations::compare(op, left, right);
  if (result && active_ && aten::isTensor(result)) noteTensorResult(result, nullptr);
  return result;
}

PyObject* Recorder::binary(int op, PyObject* left, PyObject* right) {
  endBefore();
  if (stopping_) return stop(), nullptr;
  if (!active_) return Operations::binary(op, left, right);
  PyObject* operands[] = {left, right};
  if (anyForeign({operands, 2, nullptr})) return callForeign(operatorFunction(op), {left, right});
  if (computesScalar(operands, 2)) {
    PyObject* function = operatorFunction(op);  // before the operator, which may raise
    return noteComputed(function, operands, 2, nullptr, Operations::binary(op, left, right));
  }
  deepRead(left);
  deepRead(right);
  constexpr int kFirstInplace = 13;  // NB_INPLACE_ADD
  bool writes = op >= kFirstInplace && provenance_.find(left).valid() && !aten::isTensor(left) &&
                !isConstant(left) &&
                (PyList_Check(left) || PyDict_Check(left) || PyAnySet_Check(left));
  std::optional<std::pair<ir::Event, PendingEffect>> effect;
  if (writes && !PyFrozenSet_Check(left)) {
    static PyObject* iadd =
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyList_Type), "__iadd__");
    if (!PyList_CheckExact(left) || op != kFirstInplace) {
      refuse("unsupported_write", fmt::format("in-place operator on a {}", Py_TYPE(left)->tp_name));
    } else {
      beforeWrite(left);
      if (active_) provenance_.written(left)->whole = true;
      effect.emplace();
      effect->second = describeEffect(effect->first, iadd, {operands, 2, nullptr});
    }
  }
  PyObject* result = Operations::binary(op, left, right);
  if (effect && result)
    emitEffect(std::move(effect->first), std::move(effect->second));
  else if (effect && changedBefore(left))
    refuse("unsupported_write", "an operator changed a list and raised");
  if (result && active_ && aten::isTensor(result)) noteTensorResult(result, nullptr);
  return result;
}

PyObject* Recorder::matchClass(PyObject* subject, PyObject* type, Py_ssize_t positional,
                               PyObject* names) {
  if (!active_) return Operations::matchClass(subject, type, positional, names);
  useScalar(subject);
  static PyObject* matchArgs = PyUnicode_InternFromString("__match_args__");
  PyObject* declared =
      PyType_Check(type) ? typeAttr(reinterpret_cast<PyTypeObject*>(type), matchArgs) : nullptr;
  PyObject* result = Operations::matchClass(subject, type, positional, names);
  if (!result || !active_ || aten::isTensor(subject)) return result;
  auto note = [&](PyObject* name, PyObject* value) {
    SourceId place = readAttr(subject, name);
    if (place.valid()) noteLoad(place, value);
  };
  Py_ssize_t count = PyTuple_GET_SIZE(result);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* value = PyTuple_GET_ITEM(result, i);
    if (i >= positional)
      note(PyTuple_GET_ITEM(names, i - positional), value);
    else if (declared && PyTuple_Check(declared) && i < PyTuple_GET_SIZE(declared))
      note(PyTuple_GET_ITEM(declared, i), value);
  }
  return result;
}

}  // namespace glowplug::trace
