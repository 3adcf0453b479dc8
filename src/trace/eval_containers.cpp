#include <array>
#include <memory>

#include "trace/evaluation.h"

// Making containers and taking them apart.
namespace glowplug::trace {

namespace {

Flow done(Evaluation& e, int operands, int status) {
  e.dropMany(operands);
  return status < 0 ? Flow::Error : Flow::Next;
}

// A dict of `count` items, the key and value of each given by their depth on the stack.
template <typename Key, typename Value>
PyObject* makeDict(int count, Key key, Value value) {
  PyObject* dict = PyDict_New();
  for (int index = 0; dict && index < count; index++)
    if (PyDict_SetItem(dict, key(index), value(index)) < 0) Py_CLEAR(dict);
  return dict;
}

}  // namespace

Flow evalBuildTuple(Evaluation& e, const Instruction& i) {
  PyObject* tuple = PyTuple_New(i.arg);
  if (!tuple) return Flow::Error;
  for (int index = i.arg - 1; index >= 0; index--) PyTuple_SET_ITEM(tuple, index, e.pop());
  return e.pushResult(tuple);
}

Flow evalBuildList(Evaluation& e, const Instruction& i) {
  PyObject* list = PyList_New(i.arg);
  if (!list) return Flow::Error;
  for (int index = i.arg - 1; index >= 0; index--) PyList_SET_ITEM(list, index, e.pop());
  return e.pushResult(list);
}

Flow evalBuildSet(Evaluation& e, const Instruction& i) {
  PyObject* set = PySet_New(nullptr);
  if (!set) return Flow::Error;
  for (int depth = i.arg; depth > 0; depth--) e.operations.usedAsKey(e.peek(depth));
  for (int depth = i.arg; depth > 0 && set; depth--)
    if (PySet_Add(set, e.peek(depth)) < 0) Py_CLEAR(set);
  e.dropMany(i.arg);
  return e.pushResult(set);
}

Flow evalBuildMap(Evaluation& e, const Instruction& i) {
  const int count = i.arg;
  for (int index = 0; index < count; index++) e.operations.usedAsKey(e.peek(2 * (count - index)));
  PyObject* dict = makeDict(
      count, [&](int index) { return e.peek(2 * (count - index)); },
      [&](int index) { return e.peek(2 * (count - index) - 1); });
  if (!dict) return Flow::Error;
  e.dropMany(2 * count);
  return e.pushResult(dict);
}

Flow evalBuildConstKeyMap(Evaluation& e, const Instruction& i) {
  PyObject* keys = e.top();
  const int count = i.arg;
  if (!PyTuple_CheckExact(keys) || PyTuple_GET_SIZE(keys) != count) {
    PyErr_SetString(PyExc_SystemError, "bad BUILD_CONST_KEY_MAP keys argument");
    return Flow::Error;
  }
  PyObject* dict = makeDict(
      count, [&](int index) { return PyTuple_GET_ITEM(keys, index); },
      [&](int index) { return e.peek(count - index + 1); });
  if (!dict) return Flow::Error;
  e.dropMany(count + 1);
  return e.pushResult(dict);
}

Flow evalBuildString(Evaluation& e, const Instruction& i) {
  PyObject* text = e.operations.buildString(e.stack - i.arg, i.arg);
  if (!text) return Flow::Error;
  e.dropMany(i.arg);
  return e.pushResult(text);
}

Flow evalBuildSlice(Evaluation& e, const Instruction& i) {
  const int operands = i.arg;
  PyObject* step = operands == 3 ? e.peek(1) : nullptr;
  PyObject* slice = PySlice_New(e.peek(operands), e.peek(operands - 1), step);
  e.dropMany(operands);
  return e.pushResult(slice);
}

Flow evalListToTuple(Evaluation& e, const Instruction&) {
  return e.replaceTop(PyList_AsTuple(e.top()));
}

Flow evalListAppend(Evaluation& e, const Instruction& i) {
  return done(e, 1, PyList_Append(e.peek(i.arg + 1), e.top()));
}

Flow evalSetAdd(Evaluation& e, const Instruction& i) {
  e.operations.usedAsKey(e.top());
  return done(e, 1, PySet_Add(e.peek(i.arg + 1), e.top()));
}

Flow evalMapAdd(Evaluation& e, const Instruction& i) {
  e.operations.usedAsKey(e.peek(2));
  return done(e, 2, PyDict_SetItem(e.peek(i.arg + 2), e.peek(2), e.peek(1)));
}

Flow evalListExtend(Evaluation& e, const Instruction& i) {
  return done(e, 1, e.operations.listExtend(e.peek(i.arg + 1), e.top()));
}

Flow evalSetUpdate(Evaluation& e, const Instruction& i) {
  return done(e, 1, e.operations.setUpdate(e.peek(i.arg + 1), e.top()));
}

Flow evalDictUpdate(Evaluation& e, const Instruction& i) {
  return done(e, 1, e.operations.dictUpdate(e.peek(i.arg + 1), e.top()));
}

Flow evalDictMerge(Evaluation& e, const Instruction& i) {
  return done(e, 1, e.operations.dictMerge(e.peek(i.arg + 1), e.top(), e.peek(i.arg + 3)));
}

namespace {

Flow unpack(Evaluation& e, int before, int after) {
  constexpr int kFew = 16;
  const int count = before + (after < 0 ? 0 : 1 + after);
  std::array<PyObject*, kFew> few;
  std::unique_ptr<PyObject*[]> many;
  PyObject** items = few.data();
  if (count > kFew) {
    many = std::make_unique<PyObject*[]>(static_cast<size_t>(count));
    items = many.get();
  }
  const int status = e.operations.unpack(e.top(), before, after, items);
  if (status < 0) {
    e.drop();
    return Flow::Error;
  }
  PyObject* iterable = e.pop();
  for (int index = count - 1; index >= 0; index--) e.push(items[index]);
  Py_DECREF(iterable);
  return Flow::Next;
}

}  // namespace

Flow evalUnpackSequence(Evaluation& e, const Instruction& i) { return unpack(e, i.arg, -1); }

Flow evalUnpackEx(Evaluation& e, const Instruction& i) {
  return unpack(e, i.arg & 0xff, i.arg >> 8);
}

}  // namespace glowplug::trace
