#pragma once

#include <Python.h>

#include "cpython/frame_view.h"

// The one door through which evaluated bytecode touches objects. The evaluator moves values between
// stack and locals and decides where to go next; whatever reads, writes, calls, compares or
// iterates goes through an Operations object. The base class does exactly what CPython does. The
// recorder derives from it, takes notes before and after, and calls the base.
//
// Conventions: arguments are borrowed; a PyObject* result is a new reference or nullptr with a
// Python error set, unless said otherwise; an int result is -1 with an error set.
namespace glowplug::trace {

class Operations {
 public:
  virtual ~Operations() = default;

  // A frame is about to be evaluated from its start (arguments bound), or resumed (generators, from
  // the second time on: making a generator runs nothing of its body and is not told).
  virtual void enterFrame(cpython::FrameView frame, bool resumed);
  // result is nullptr when the frame ends by an exception; yielded: a generator is suspended.
  virtual void leaveFrame(cpython::FrameView frame, PyObject* result, bool yielded);
  // A frame is given to the default evaluator: nothing of what it does (from here on, if it was
  // entered; leaveFrame follows then) comes through this door. Its callees' frames may.
  virtual void delegateFrame(cpython::FrameView frame);
  // In all methods below the frame's line() is that of the instruction.

  // Names. loadGlobal looks in globals, then builtins; loadName in locals first.
  virtual PyObject* loadGlobal(cpython::FrameView frame, PyObject* name);
  virtual PyObject* loadName(cpython::FrameView frame, PyObject* name);
  // value nullptr: delete.
  virtual int storeName(cpython::FrameView frame, PyObject* name, PyObject* value);
  virtual int storeGlobal(cpython::FrameView frame, PyObject* name, PyObject* value);
  // New reference, or nullptr without an error when the cell is empty.
  virtual PyObject* loadCell(PyObject* cell);
  virtual void storeCell(PyObject* cell, PyObject* value);  // value nullptr: empty the cell
  virtual PyObject* importName(cpython::FrameView frame, PyObject* name, PyObject* fromlist,
                               PyObject* level);
  virtual PyObject* importFrom(PyObject* module, PyObject* name);
  virtual int importStar(cpython::FrameView frame, PyObject* module);
  // The function behind `class` statements.
  virtual PyObject* loadBuildClass(cpython::FrameView frame);

  // Attributes and items; value nullptr: delete.
  virtual PyObject* loadAttr(PyObject* object, PyObject* name);
  // As _PyObject_GetMethod: 1 and an unbound *method to be called with object first, or 0 and
  // *method to be called without it; -1 with an error.
  virtual int loadMethod(PyObject* object, PyObject* name, PyObject** method);
  virtual int storeAttr(PyObject* object, PyObject* name, PyObject* value);
  virtual PyObject* loadItem(PyObject* container, PyObject* key);
  virtual int storeItem(PyObject* container, PyObject* key, PyObject* value);

  // Operators. `op` is the oparg of BINARY_OP (NB_*), of COMPARE_OP (Py_LT...).
  virtual PyObject* binary(int op, PyObject* left, PyObject* right);
  virtual PyObject* compare(int op, PyObject* left, PyObject* right);
  virtual PyObject* positive(PyObject* value);
  virtual PyObject* negative(PyObject* value);
  virtual PyObject* invert(PyObject* value);
  virtual int truth(PyObject* value);
  virtual bool is(PyObject* left, PyObject* right);
  virtual int contains(PyObject* container, PyObject* item);

  // Iteration. next: nullptr without an error when exhausted.
  virtual PyObject* iter(PyObject* iterable);
  virtual PyObject* next(PyObject* iterator);
  virtual PyObject* yieldFromIter(PyObject* iterable, cpython::FrameView frame);
  // One step of `yield from` and `await`: *result is what was yielded (PYGEN_NEXT) or returned.
  virtual PySendResult send(PyObject* receiver, PyObject* value, PyObject** result);
  // Unpacks into out[0 .. before + after] in order of the targets; after = -1: no starred target,
  // else out[before] is the list of the rest. Errors as UNPACK_SEQUENCE / UNPACK_EX give.
  virtual int unpack(PyObject* iterable, int before, int after, PyObject** out);

  // Building from other containers.
  virtual int listExtend(PyObject* list, PyObject* iterable);
  virtual int setUpdate(PyObject* set, PyObject* iterable);
  virtual int dictUpdate(PyObject* dict, PyObject* mapping);
  // The callee's **kwargs: duplicate keys are errors.
  virtual int dictMerge(PyObject* dict, PyObject* mapping, PyObject* callee);
  // conversion: FORMAT_VALUE's (none, str, repr, ascii); spec may be nullptr.
  virtual PyObject* formatValue(PyObject* value, int conversion, PyObject* spec);
  // An f-string's pieces, all of class str.
  virtual PyObject* buildString(PyObject* const* pieces, Py_ssize_t count);
  // A set or dict is being built with that key: note only.
  virtual void usedAsKey(PyObject* key);

  // Calls. args[-1] may be used as PY_VECTORCALL_ARGUMENTS_OFFSET allows when nargsf says so.
  virtual PyObject* call(PyObject* callee, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  // CALL_FUNCTION_EX: tuple is any iterable until made exact by the evaluator (via
  // sequenceToTuple).
  virtual PyObject* callEx(PyObject* callee, PyObject* tuple, PyObject* dict);
  virtual PyObject* sequenceToTuple(PyObject* iterable, PyObject* callee);
  // `with`: looks `name` up on the type and binds it; nullptr without an error when missing.
  virtual PyObject* loadSpecial(PyObject* object, PyObject* name);
  // A function made by MAKE_FUNCTION: note only.
  virtual void madeFunction(PyObject* function);

  // match statements. matchClass: the attributes as a tuple; nullptr without an error: no match.
  virtual PyObject* matchClass(PyObject* subject, PyObject* type, Py_ssize_t positional,
                               PyObject* names);
  virtual PyObject* matchKeys(PyObject* mapping, PyObject* keys);  // tuple of values, or None
  virtual PyObject* length(PyObject* value);                       // GET_LEN
  // What `case {}` and `case []` ask of the subject's type.
  virtual bool isMapping(PyObject* subject);
  virtual bool isSequence(PyObject* subject);
};

}  // namespace glowplug::trace
