// Numbers and texts whose value a replay finds anew: tensor.item(), what opaque calls return, and
// what the program computes from them.
//
// Such a value is known by the identity of the Python object that holds it; no other object of the
// program is that object (cpython::distinctCopy). Computing with one makes a pure call that a
// replay makes again. Only where the program takes a decision by it, or uses it in a way that is
// not followed, is it compared: a fork.

#include <array>

#include "cpython/constant.h"
#include "cpython/error_pause.h"
#include "cpython/modules.h"
#include "trace/recorder.h"

namespace glowplug::trace {

using common::ValueId;
using cpython::Ref;

namespace {

// By the oparg of BINARY_OP.
PyObject* binaryFunction(int op) {
  constexpr size_t kCount = 26;
  static const std::array<PyObject*, kCount> functions = [] {
    std::array<const char*, kCount> names = {
        "add",  "and_",      "floordiv", "lshift",   "matmul",  "mul",  "mod",
        "or_",  "pow",       "rshift",   "sub",      "truediv", "xor",  "iadd",
        "iand", "ifloordiv", "ilshift",  "imatmul",  "imul",    "imod", "ior",
        "ipow", "irshift",   "isub",     "itruediv", "ixor"};
    std::array<PyObject*, kCount> found{};
    for (size_t i = 0; i < kCount; i++) found[i] = cpython::moduleAttribute("operator", names[i]);
    return found;
  }();
  return functions[static_cast<size_t>(op)];
}

PyObject* compareFunction(int op) {
  static PyObject* const kFunctions[] = {
      cpython::moduleAttribute("operator", "lt"), cpython::moduleAttribute("operator", "le"),
      cpython::moduleAttribute("operator", "eq"), cpython::moduleAttribute("operator", "ne"),
      cpython::moduleAttribute("operator", "gt"), cpython::moduleAttribute("operator", "ge")};
  return kFunctions[op];
}

PyObject* builtin(const char* name) { return cpython::moduleAttribute("builtins", name); }

PyObject* unaryFunction(const char* name) {
  static PyObject* const kPos = cpython::moduleAttribute("operator", "pos");
  static PyObject* const kNeg = cpython::moduleAttribute("operator", "neg");
  static PyObject* const kInvert = cpython::moduleAttribute("operator", "invert");
  return *name == 'p' ? kPos : *name == 'n' ? kNeg : kInvert;
}

bool isSimple(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyUnicode_CheckExact(object) ||
         PyBool_Check(object) || object == Py_None;
}

}  // namespace

PyObject* operatorFunction(int op) { return binaryFunction(op); }
PyObject* comparisonFunction(int op) { return compareFunction(op); }

void Recorder::trackScalar(PyObject* object, ValueId value) {
  scalars_[object] = value;
  scalarObjects_.push_back(Ref::borrow(object));
}

// The arguments are numbers and texts, and one of them is tracked.
bool Recorder::computesScalar(PyObject* const* operands, size_t count) const {
  if (scalars_.empty() || !active_) return false;
  bool tracked = false;
  for (size_t i = 0; i < count; i++) {
    if (!isSimple(operands[i])) return false;
    tracked |= scalars_.count(operands[i]) != 0;
  }
  return tracked;
}

// `result` is what function(*operands) gave; what is handed on to the program comes back.
PyObject* Recorder::noteComputed(PyObject* callee, PyObject* const* operands, size_t count,
                                 PyObject* kwnames, PyObject* given) {
  Ref result = Ref::steal(given);
  bool followed = result && callee && (isSimple(result.get()) && result.get() != Py_None);
  Ref copy = followed ? Ref::steal(cpython::distinctCopy(result.get())) : Ref();
  if (!followed || (!copy && !PyBool_Check(result.get()) && !PyUnicode_Check(result.get()))) {
    cpython::ErrorPause pause;
    for (size_t i = 0; i < count; i++) useScalar(operands[i]);
    return result.release();
  }
  ir::Event event;
  event.kind = ir::EventKind::Opaque;
  event.pure = true;
  size_t named = kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0;
  describeApart(event, callee, {operands, count - named, kwnames});
  ValueId value(trace().values.size());
  trace().values.push_back({ir::ValueKind::Object, common::SourceId(), common::MetaId(), false});
  event.results.push_back(value);
  emit(std::move(event));
  if (!active_) return result.release();
  if (!copy) {  // one of few objects that all share
    forkOn(value, result.get());
    return result.release();
  }
  common::SourceId source =
      child(common::SourceId(), ir::StepKind::Result, static_cast<int64_t>(value.index()));
  guard(ir::PredicateKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(copy.get())));
  trackScalar(copy.get(), value);
  return copy.release();
}

// An immutable value with a tracked one in it.
bool Recorder::holdsScalar(PyObject* object) const {
  if (scalars_.empty()) return false;
  if (scalars_.count(object)) return true;
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return holdsScalar(slice->start) || holdsScalar(slice->stop) || holdsScalar(slice->step);
  }
  if (PyFrozenSet_Check(object)) {
    PyObject* item;
    Py_ssize_t position = 0;
    Py_hash_t hash;
    while (_PySet_NextEntry(object, &position, &item, &hash))
      if (holdsScalar(item)) return true;
  }
  if (!PyTuple_Check(object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
    if (holdsScalar(PyTuple_GET_ITEM(object, i))) return true;
  return false;
}

// Its value matters from here on.
void Recorder::useScalar(PyObject* value) {
  if (scalars_.empty() || !active_) return;
  if (PyTuple_Check(value))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) useScalar(PyTuple_GET_ITEM(value, i));
  auto it = scalars_.find(value);
  if (it == scalars_.end()) return;
  ValueId id = it->second;
  scalars_.erase(it);
  if (refusesGarbage(id)) return;
  if (clocks_.count(id.value))
    return refuse("data_value", "a clock's reading decides what the program does");
  forkOn(id, value);
}

void Recorder::onScalar(ValueId value, PyObject* scalar) {
  if (!active_) return;
  pendingScalars_.emplace_back(value, Ref::borrow(scalar));
  if (!expectScalar_) pinPending();
}

void Recorder::forkOn(ValueId value, PyObject* expected) {
  ir::Event event;
  event.kind = ir::EventKind::Fork;
  event.value = value;
  event.expected = objectId(expected);
  emit(std::move(event));
}

void Recorder::pinPending() {
  for (auto& [value, scalar] : pendingScalars_) forkOn(value, scalar.get());
  pendingScalars_.clear();
}

// A callee that hands one number of a tensor on to the program.
PyObject* Recorder::callItem(const Invoke& invoke) {
  expectScalar_ = true;
  Ref result = Ref::steal(invoke());
  expectScalar_ = false;
  if (!active_ || !result) return result.release();
  Ref copy;
  if (pendingScalars_.size() == 1) copy = Ref::steal(cpython::distinctCopy(result.get()));
  // float(t) of an integer tensor hands on another number than the operator gave.
  bool same = copy && cpython::constantsEqual(copy.get(), pendingScalars_[0].second.get());
  if (!same) {
    pinPending();
    return result.release();
  }
  trackScalar(copy.get(), pendingScalars_[0].first);
  pendingScalars_.clear();
  return copy.release();
}

PyObject* Recorder::unaryScalar(const char* name, PyObject* value, PyObject* result) {
  PyObject* function = result ? unaryFunction(name) : nullptr;  // else it has raised
  return noteComputed(function, &value, 1, nullptr, result);
}

PyObject* Recorder::positive(PyObject* value) {
  if (active_ && isForeign(value)) return callForeign(unaryFunction("pos"), {value});
  PyObject* result = Operations::positive(value);
  return computesScalar(&value, 1) ? unaryScalar("pos", value, result) : result;
}

PyObject* Recorder::negative(PyObject* value) {
  if (active_ && isForeign(value)) return callForeign(unaryFunction("neg"), {value});
  PyObject* result = Operations::negative(value);
  return computesScalar(&value, 1) ? unaryScalar("neg", value, result) : result;
}

PyObject* Recorder::invert(PyObject* value) {
  if (active_ && isForeign(value)) return callForeign(unaryFunction("invert"), {value});
  PyObject* result = Operations::invert(value);
  return computesScalar(&value, 1) ? unaryScalar("invert", value, result) : result;
}

int Recorder::truth(PyObject* value) {
  endBefore();
  if (!active_) return Operations::truth(value);
  static PyObject* truthOf = cpython::moduleAttribute("operator", "truth");
  if (isForeign(value)) {
    Ref answer = Ref::steal(callForeign(truthOf, {value}));
    return answer ? answer.get() == Py_True : -1;
  }
  if (!aten::isTensor(value)) readLength(value);
  int answer = Operations::truth(value);
  if (answer < 0 || !computesScalar(&value, 1)) return answer;
  Py_DECREF(noteComputed(truthOf, &value, 1, nullptr, PyBool_FromLong(answer)));
  return answer;
}

PyObject* Recorder::formatValue(PyObject* value, int conversion, PyObject* spec) {
  endBefore();
  if (!active_) return Operations::formatValue(value, conversion, spec);
  static PyObject* const kConversions[] = {nullptr, builtin("str"), builtin("repr"),
                                           builtin("ascii")};
  static PyObject* format = builtin("format");
  static PyObject* empty = PyUnicode_InternFromString("");
  if (isForeign(value)) {
    Ref text = Ref::borrow(value);
    if (conversion) text = Ref::steal(callForeign(kConversions[conversion & 3], {value}));
    if (!text || conversion) return text.release();
    return callForeign(format, {value, spec ? spec : empty});
  }
  if (!computesScalar(&value, 1)) {
    deepRead(value);
    if (spec) useScalar(spec);
    return Operations::formatValue(value, conversion, spec);
  }
  Ref text = Ref::borrow(value);
  if (conversion) {
    text = Ref::steal(Operations::formatValue(value, conversion, nullptr));
    text =
        Ref::steal(noteComputed(kConversions[conversion & 3], &value, 1, nullptr, text.release()));
    if (!text || !spec) return text.release();
  }
  PyObject* operands[] = {text.get(), spec ? spec : empty};
  PyObject* result = Operations::formatValue(text.get(), 0, spec);
  return noteComputed(format, operands, 2, nullptr, result);
}

PyObject* Recorder::buildString(PyObject* const* pieces, Py_ssize_t count) {
  PyObject* result = Operations::buildString(pieces, count);
  if (!result || !computesScalar(pieces, static_cast<size_t>(count))) return result;
  static PyObject* join =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyUnicode_Type), "join");
  static PyObject* empty = PyUnicode_InternFromString("");
  Ref tuple = Ref::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(pieces[i]));
  joined_.push_back(tuple);
  PyObject* operands[] = {empty, tuple.get()};
  return noteComputed(join, operands, 2, nullptr, result);
}

void Recorder::usedAsKey(PyObject* key) { useScalar(key); }

}  // namespace glowplug::trace
