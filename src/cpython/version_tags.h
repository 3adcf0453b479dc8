#pragma once

#include <Python.h>

#include <cstdint>

// Numbers by which CPython tells that something has not changed, and look-ups in dicts that run no
// Python code. Only this folder knows the structs behind them.
namespace glowplug::cpython {

// The state of a dict (or of an instance of a dict subclass). Globally unique: an equal number
// means the same dict with the same items, whatever its address.
const uint64_t* dictVersionAddress(PyObject* dict);
inline uint64_t dictVersion(PyObject* dict) { return *dictVersionAddress(dict); }
// The dict whose state is at that address.
PyObject* dictOfVersionAddress(const uint64_t* address);

// OrderedDict keeps its order apart from the dict; moving an item changes this number only. It says
// something only beside an equal dictVersion.
bool isOrderedDict(PyObject* dict);
const uint64_t* orderStateAddress(PyObject* orderedDict);

// What attribute look-ups on a class find, or 0 when CPython keeps no number for it now. Globally
// unique.
const uint32_t* typeVersionAddress(PyTypeObject* type);
inline uint32_t typeVersion(PyTypeObject* type) { return *typeVersionAddress(type); }
// Has CPython give the class a number if it can.
uint32_t assignTypeVersion(PyTypeObject* type);

enum class Found : uint8_t { Yes, No, Unknown };  // Unknown: only Python code (__eq__) could tell
// Looks the key up; `*value` is borrowed.
Found dictFind(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value);

// The same for an item of a set or frozenset.
Found setFind(PyObject* set, PyObject* item, Py_hash_t hash);

// Goes through the keys in the order that iteration has, borrowed.
class DictKeys {
 public:
  explicit DictKeys(PyObject* dict);
  PyObject* next();  // nullptr after the last

 private:
  PyObject* dict_;
  Py_ssize_t position_ = 0;
  const void* node_ = nullptr;
  bool ordered_ = false;
};

// While one lives, no garbage collection starts on this thread, so that making an object runs no
// finalizer.
class CollectionPause {
 public:
  CollectionPause() : was_(PyGC_Disable()) {}
  ~CollectionPause() {
    if (was_) PyGC_Enable();
  }
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;

 private:
  int was_;
};

}  // namespace glowplug::cpython
