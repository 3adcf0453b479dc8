#include "cpython/pycore.h"

#include "cpython/frame_view.h"

namespace glowplug::cpython {

PyCodeObject* FrameView::code() const { return frame_->f_code; }
PyObject* FrameView::function() const { return reinterpret_cast<PyObject*>(frame_->f_func); }
PyObject* FrameView::globals() const { return frame_->f_globals; }
PyObject* FrameView::builtins() const { return frame_->f_builtins; }
PyObject* FrameView::locals() const { return frame_->f_locals; }
PyObject** FrameView::fastLocals() const { return frame_->localsplus; }
int FrameView::instruction() const { return _PyInterpreterFrame_LASTI(frame_); }
void FrameView::setInstruction(int index) {
  frame_->prev_instr = _PyCode_CODE(frame_->f_code) + index;
}
int FrameView::line() const {
  return PyCode_Addr2Line(frame_->f_code, instruction() * static_cast<int>(sizeof(_Py_CODEUNIT)));
}
bool FrameView::isGenerator() const { return frame_->owner == FRAME_OWNED_BY_GENERATOR; }

}  // namespace glowplug::cpython
