// The ends of objects.
//
// What an opaque call has given, or may have kept, is held by the recording, which knows it by its
// address, and by each replay, which may have to hand it to the program. Where the program lets go
// of it before the call is over, and that may be seen, neither may go on holding it.

#include <string_view>

#include "trace/foreign.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

bool hasFinalizer(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__del__");
  return name && isPythonClass(type) && _PyType_Lookup(type, name);
}

// Asks a method or attribute of one of CPython's own files; true also where that fails.
bool mayBeTrue(Ref answer) {
  int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth < 0) PyErr_Clear();
  return truth != 0;
}

// Its end writes what is buffered.
bool isOpenForWriting(PyObject* file) {
  Ref closed = Ref::steal(PyObject_GetAttrString(file, "closed"));
  if (closed && mayBeTrue(std::move(closed))) return false;
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
  if (!provenance_.hasMortals()) return;
  while (Ref ended = provenance_.takeEnded()) {
    kept_.erase(ended.get());
    described_.ids.erase(ended.get());
    int own = recording_->objects.holdsWeakly(ended.get()) ? 1 : 0;
    if (active_ && endIsSeen(ended.get(), own))
      refuse("ended_result", Py_TYPE(ended.get())->tp_name);
  }
}

void Recorder::letResultsGo() {
  provenance_.letObjectsGo();
  described_.fresh.clear();
}

}  // namespace glowplug::trace
