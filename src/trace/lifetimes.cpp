// The ends of objects.
//
// What an opaque call has given, or may have kept, is held by the recording, which knows it by its
// address, and by each replay, which may have to hand it to the program. Where the program lets go
// of it before the call is over, and that may be seen, neither may go on holding it.

#include <string_view>
#include <unordered_set>

#include "trace/containers.h"
#include "trace/foreign.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::SourceId;
using cpython::Ref;

namespace {

bool hasFinalizer(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__del__");
  return name && isPythonClass(type) && _PyType_Lookup(type, name);
}

// Asks a method or attribute of one of CPython's own files; true also where that fails.
bool mayBeTrue(const Ref& answer) {
  int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth < 0) PyErr_Clear();
  return truth != 0;
}

// Its end writes what is buffered.
bool isOpenForWriting(PyObject* file) {
  Ref closed = Ref::steal(PyObject_GetAttrString(file, "closed"));
  if (closed && mayBeTrue(closed)) return false;
  PyErr_Clear();
  return mayBeTrue(Ref::steal(PyObject_CallMethod(file, "writable", nullptr)));
}

// Weak references other than the `own` ones of the recording, which share one object with those of
// the program that have no callback.
bool hasWeakReferences(PyObject* object, int own) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  auto* reference = *reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference; reference = reference->wr_next)
    if (reference->wr_callback || Py_REFCNT(reference) > own) return true;
  return false;
}

// Somebody can tell whether the object is still there, other than by counting references.
bool endIsSeen(PyObject* object, int ownReferences) {
  PyTypeObject* type = Py_TYPE(object);
  if (hasFinalizer(type) || hasWeakReferences(object, ownReferences)) return true;
  if (!isForeignType(type)) return false;
  // Files in C; a class of the user's over them may look at itself in these methods.
  if (std::string_view(type->tp_name).starts_with("_io.")) return isOpenForWriting(object);
  return !keepsToItself(type);
}

// How often the object is held, weakly as well.
Py_ssize_t holdsOn(PyObject* object) {
  Py_ssize_t count = Py_REFCNT(object);
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return count;
  auto* list = reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  return count + _PyWeakref_GetWeakrefCount(*list);
}

}  // namespace

// What stands in something that a call has given, or may have kept, was born with it, for all that
// is known.
Provenance::Life Recorder::lifeAt(common::SourceId source) const {
  while (source.valid()) {
    const ir::Source& at = recording_->trace.sources[source.index()];
    if (at.step == ir::StepKind::Result || at.step == ir::StepKind::Built)
      return Provenance::Life::Call;
    source = at.parent;
  }
  return Provenance::Life::Recording;
}

void Recorder::endResults() {
  endOperands();
  if (provenance_.mortals().empty()) return;
  while (Ref ended = provenance_.takeEnded()) {
    kept_.erase(ended.get());
    described_.ids.erase(ended.get());
    int own = recording_->objects.holdsWeakly(ended.get()) ? 1 : 0;
    if (active_ && endIsSeen(ended.get(), own))
      refuse("ended_result", Py_TYPE(ended.get())->tp_name);
  }
}

// Of what calls have been given so far, and of what this one is given.
Recorder::Holds Recorder::holdsOnBuilt(const Described& given) const {
  Holds holds;
  for (const Ref& held : provenance_.mortals()) {
    SourceId source = provenance_.find(held.get());
    if (recording_->trace.sources[source.index()].step == ir::StepKind::Built)
      holds.emplace_back(held.get(), holdsOn(held.get()));
  }
  for (const auto& [object, id] : madeIn(given)) holds.emplace_back(object, holdsOn(object));
  return holds;
}

// A replay that stops behind a call of which nothing is known is followed by the program, whose
// objects are others than those that the call was given: so it must not keep them.
void Recorder::noteKept(const Holds& before) {
  for (const auto& [object, count] : before)
    if (holdsOn(object) > count) return refuse("kept_by_call", Py_TYPE(object)->tp_name);
}

// Looks whether the end of an object, or of what ends with it, is seen, as far as containers and
// instances of classes in Python go. What came from outside does not end with it.
class Recorder::EndSearch {
 public:
  EndSearch(const Recorder& recorder, PyObject* top) : recorder_(recorder), top_(top) {}

  bool isSeenIn(PyObject* object) {
    constexpr size_t kMost = 1000;
    if (isConstant(object) || isPinnable(object) || aten::isTensor(object)) return false;
    SourceId source = recorder_.provenance_.find(object);
    if (source.valid() && recorder_.lifeAt(source) == Provenance::Life::Recording) return false;
    if (!seen_.insert(object).second) return false;
    if (object != top_ && Py_REFCNT(object) > 1) shared_ = true;
    int own = recorder_.recording_->objects.holdsWeakly(object) ? 1 : 0;
    if (seen_.size() > kMost || endIsSeen(object, own)) return true;
    if (!isKnownContainer(object) && !isPythonClass(Py_TYPE(object))) return false;
    traverseproc traverse = Py_TYPE(object)->tp_traverse;
    return traverse && traverse(object, visit, this);
  }

  // Others hold something that it holds, and may put into it what has an end that is seen.
  bool shared() const { return shared_; }

 private:
  static int visit(PyObject* part, void* self) {
    return static_cast<EndSearch*>(self)->isSeenIn(part);
  }

  const Recorder& recorder_;
  PyObject* top_;
  std::unordered_set<PyObject*> seen_;
  bool shared_ = false;
};

// Effects hold their operands until they are described. One that the program has let go of may hold
// something else whose end is seen.
void Recorder::endOperands() {
  if (!active_) return;
  for (auto at = effectOperands_.begin(); at != effectOperands_.end();) {
    PyObject* object = at->first;
    if (Py_REFCNT(object) != at->second) {
      ++at;
      continue;
    }
    EndSearch search(*this, object);
    if (search.isSeenIn(object)) {
      refuse("ended_result", Py_TYPE(object)->tp_name);
      return letResultsGo();
    }
    // Nobody can reach it any more: it stays as it is.
    at = search.shared() ? std::next(at) : effectOperands_.erase(at);
  }
}

// What ends may run code of the program's, and so come here again.
void Recorder::letResultsGo() {
  effectOperands_.clear();
  std::vector<PendingEffect> effects;
  std::vector<Ref> described;
  effects.swap(pendingEffects_);
  described.swap(described_.fresh);
  provenance_.letObjectsGo();
}

}  // namespace glowplug::trace
