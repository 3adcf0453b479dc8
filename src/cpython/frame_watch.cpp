#include "cpython/frame_watch.h"

#include <utility>

#include "cpython/error_pause.h"
#include "cpython/eval_hook.h"
#include "cpython/frame_view.h"
#include "cpython/ref.h"

namespace glowplug::cpython {
namespace {

// Names of top packages: a frozenset, for good.
PyObject* quietPackages() {
  static PyObject* names = [] {
    // pytest's handlers of output only collect it.
    Ref set = Ref::steal(PyFrozenSet_New(PySys_GetObject("stdlib_module_names")));
    for (const char* package : {"torch", "numpy", "glowplug", "_pytest"}) {
      Ref name = Ref::steal(PyUnicode_InternFromString(package));
      // The set has been seen by nobody yet.
      if (!set || !name || PySet_Add(set.get(), name.get()) < 0) Py_FatalError("out of memory");
    }
    return set.release();
  }();
  return names;
}

thread_local FrameWatch* innermost = nullptr;

}  // namespace

FrameWatch::FrameWatch() : outer_(std::exchange(innermost, this)) {
  quietPackages();
  addHookUser();
}

FrameWatch::~FrameWatch() {
  removeHookUser();
  innermost = outer_;
  if (outer_) outer_->ranProgram_ |= ranProgram_;
}

void FrameWatch::note(struct _PyInterpreterFrame* frame) {
  if (!innermost || innermost->ranProgram_) return;
  // A frame that goes on may have been handed an exception.
  ErrorPause pause;
  innermost->ranProgram_ = isOfProgram(FrameView(frame).globals());
}

bool isOfProgram(PyObject* globals) {
  PyObject* name = PyDict_GetItemString(globals, "__name__");
  if (!name || !PyUnicode_Check(name)) return true;
  Py_ssize_t length = PyUnicode_GET_LENGTH(name);
  Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, length, 1);
  Ref top = Ref::steal(PyUnicode_Substring(name, 0, dot < 0 ? length : dot));
  int quiet = top ? PySet_Contains(quietPackages(), top.get()) : -1;
  if (quiet < 0) PyErr_Clear();
  return quiet <= 0;
}

}  // namespace glowplug::cpython
