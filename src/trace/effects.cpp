// Writes to objects that came from outside, as events that a replay makes again.
//
// The first write to a container keeps a shallow copy of what was there: a later read of a part
// that was not written is a read of that state.

#include "cpython/object_fields.h"
#include "trace/containers.h"
#include "trace/recorder.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

// A container with what this one holds now.
Ref shallowCopy(PyObject* object) {
  if (PyDict_Check(object)) return Ref::steal(PyDict_Copy(object));
  if (PyAnySet_Check(object)) return Ref::steal(PySet_New(object));
  return Ref::steal(PySequence_List(object));
}

}  // namespace

void Recorder::beforeWrite(PyObject* container) {
  if (active_ && limits_.undoable && !undo_.noteContents(container)) PyErr_Clear();
  if (!active_ || !isSourced(container) || provenance_.written(container)) return;
  // A set is frozen, for a guard to compare with.
  Ref snapshot =
      PyAnySet_Check(container) ? Ref::steal(PyFrozenSet_New(container)) : shallowCopy(container);
  if (!snapshot) PyErr_Clear();
  provenance_.startWriting(container, std::move(snapshot));
}

void Recorder::wroteKey(PyObject* container, PyObject* key) {
  provenance_.forgetReads();
  Provenance::Written* written = provenance_.written(container);
  if (!written) return;
  if (PySet_Add(written->keys.get(), provenance_.canonical(key)) < 0) PyErr_Clear();
}

// Effects name their operands by recipes that are made when the recording ends, so that a fresh
// object is described in its final state. A tensor is not kept alive for that: its value is known
// now.
void Recorder::emitEffect(ir::EffectKind kind, std::initializer_list<PyObject*> operands) {
  provenance_.forgetReads();
  if (!active_) return;
  ir::Event event;
  event.kind = ir::EventKind::Effect;
  event.effect = kind;
  PyObject* const* at = operands.begin();
  bool slice = kind == ir::EffectKind::SetItem && PySlice_Check(at[1]);
  PendingEffect pending;
  for (PyObject* operand : operands) addOperand(event, pending, operand, slice && operand == at[2]);
  emitEffect(std::move(event), std::move(pending));
}

// copied: the effect takes over what the operand holds now, whatever becomes of the operand.
void Recorder::addOperand(ir::Event& event, PendingEffect& pending, PyObject* operand,
                          bool copied) {
  bool early = aten::isTensor(operand) && ops_->find(operand).valid();
  event.recipes.push_back(early ? tensorRecipe(operand) : common::RecipeId());
  Ref now;
  if (copied && isKnownContainer(operand) && !isConstant(operand) &&
      !provenance_.find(operand).valid()) {
    now = shallowCopy(operand);
    if (!now) PyErr_Clear();
  }
  if (!early && !now) now = Ref::borrow(operand);
  pending.operands.push_back(std::move(now));
}

// A method of a builtin container that writes: it is called again at replay.
Recorder::PendingEffect Recorder::describeEffect(ir::Event& event, PyObject* callee,
                                                 const Arguments& args) {
  event.kind = ir::EventKind::Effect;
  event.effect = ir::EffectKind::CallMethod;
  if (args.kwnames && PyTuple_GET_SIZE(args.kwnames)) event.keywords = objectId(args.kwnames);
  PendingEffect pending;
  addOperand(event, pending, callee, false);
  bool copies = calleeModel(callee).absorbs;
  for (size_t i = 0; i < args.count(); i++)
    addOperand(event, pending, args.values[i], copies && i > 0 && i < args.positional);
  return pending;
}

void Recorder::emitEffect(ir::Event event, PendingEffect pending) {
  provenance_.forgetReads();
  if (!active_) return;
  // Looking at a tensor may have made an event of what was done to it.
  pending.event = trace().events.size();
  emit(std::move(event));
  for (const Ref& operand : pending.operands) {
    PyObject* held = operand.get();
    if (held && !isConstant(held) && !isPinnable(held) && !isSourced(held)) effectOperands_[held]++;
  }
  pendingEffects_.push_back(std::move(pending));
}

// Whether the container differs in size from what it was before it was written first.
bool Recorder::changedBefore(PyObject* container) {
  Provenance::Written* entry = provenance_.written(container);
  if (!entry || !entry->snapshot) return true;
  Py_ssize_t before = PyObject_Size(entry->snapshot.get()), now = PyObject_Size(container);
  return before != now;
}

}  // namespace glowplug::trace
