#pragma once

#include <Python.h>

#include "cpython/decoded_code.h"
#include "cpython/frame_view.h"
#include "trace/operations.h"

// Inside the evaluator: the state of one frame, and one function for each instruction that is not
// evaluated in the frame loop itself (evaluator_loop.cpp).
namespace glowplug::trace {

// What the loop does after an instruction.
enum class Flow : uint8_t {
  Next,
  Pending,      // Next, after a look at pending work (signals, GIL requests), as after a call
  PendingJump,  // the same, after a jump backwards
  Error,        // an error is set; add this frame to its traceback, then unwind
  Unwind,       // an error is set that has its traceback already (re-raised)
  Return,       // with Evaluation::result
  Yield,
  Delegate,  // the default evaluator must go on from here: this instruction is not for us
};

struct Evaluation {
  PyThreadState* thread;
  Operations& operations;
  cpython::FrameView frame;
  PyCodeObject* code;
  const cpython::DecodedCode* decoded;
  PyObject** locals;
  PyObject** stack;  // one above the top value
  const cpython::Instruction* next;
  PyObject* kwnames = nullptr;  // borrowed; of the Call that follows
  PyObject* result = nullptr;   // what the frame returns or yields

  void push(PyObject* value) { *stack++ = value; }
  PyObject* pop() { return *--stack; }
  PyObject*& peek(int depth) { return stack[-depth]; }  // 1: the top
  PyObject*& top() { return stack[-1]; }
  void drop() { Py_DECREF(*--stack); }
  void dropMany(int count) {
    for (int i = 0; i < count; i++) drop();
  }
  void jump(const cpython::Instruction& instruction) {
    next = decoded->begin() + instruction.target;
  }
  // Pushes a new reference, if there is one.
  Flow pushResult(PyObject* result) {
    if (!result) return Flow::Error;
    push(result);
    return Flow::Next;
  }
  // Replaces the top value by a new reference; the old value is dropped even if there is none.
  Flow replaceTop(PyObject* result) {
    drop();
    return pushResult(result);
  }
  Flow pushBool(bool value) {
    push(Py_NewRef(value ? Py_True : Py_False));
    return Flow::Next;
  }
};

using Instruction = cpython::Instruction;

#define INLINE(name)
#define FAMILY(name, family) \
  Flow eval##name(Evaluation& evaluation, const Instruction& instruction);
#include "cpython/instructions.def"

// The frame loop. Returns as an evaluator does.
PyObject* evaluateFrame(PyThreadState* thread, cpython::FrameView frame, bool throwing,
                        Operations& operations);

struct EvaluationCounts;
EvaluationCounts& threadCounts();

}  // namespace glowplug::trace
