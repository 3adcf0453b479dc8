#pragma once

#include <Python.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/ids.h"
#include "cpython/ref.h"
#include "ir/trace.h"

namespace glowplug::trace {

// Which objects came from outside, by identity, and what the program has written to them since.
//
// Sourced objects are held strongly while the recording lasts, so that an address cannot come to
// mean another object. What was born in the call is let go of when nobody else has it.
class Provenance {
 public:
  // A container (dict, list, set...) that existed before and was written. What it held before the
  // first write is kept, because a read of the parts that were not written is a read of that state.
  struct Written {
    cpython::Ref snapshot;  // shallow copy taken before the first write
    cpython::Ref keys;      // set of the keys written
    bool whole = false;     // everything was read (guarded) or replaced: behaves as fresh now
    bool sealed = false;    // something unknown may have changed it since
    bool atOnce = false;    // an event has written it, which needs no commit: it may be read again
  };

  common::SourceId find(PyObject* object) const {
    auto it = sources_.find(object);
    return it == sources_.end() ? common::SourceId() : it->second;
  }
  enum class Life { Recording, Call };  // Call: the object was born in the call and may end in it
  void remember(PyObject* object, common::SourceId source, Life life = Life::Recording);
  bool hasMortals() const { return !mortal_.empty(); }
  // After a refusal; the addresses mean nothing any more.
  void letObjectsGo() {
    mortal_.clear();
    alive_.clear();
  }
  // An object born in the call that nobody else holds, forgotten, or null.
  cpython::Ref takeEnded();
  // The object that was found at the source first, borrowed, or nullptr.
  PyObject* objectAt(common::SourceId source) const {
    auto it = objects_.find(source);
    return it == objects_.end() ? nullptr : it->second;
  }

  // The id of an access path: equal paths give the same id.
  common::SourceId intern(ir::Trace& trace, const ir::Source& source);
  // One object for all equal strings, so that equal keys make equal paths.
  PyObject* canonical(PyObject* key);
  // One tuple for all tuples of equal canonical elements.
  PyObject* canonicalTuple(PyObject* tuple);
  // False when that guard is there already.
  bool firstGuard(const ir::Guard& guard);
  // False when the function has been entered before in this recording.
  bool firstEntry(PyObject* function) { return entered_.insert(function).second; }
  // False when the look-up of `name` on `type` has been guarded before.
  bool firstTypeLookup(PyTypeObject* type, PyObject* name) {
    return lookups_.insert(Key::of(type, name)).second;
  }
  // A class attribute was written in the call: what look-ups on the class and its subclasses find
  // under that name is the program's own.
  void writeType(PyTypeObject* type, PyObject* name) {
    forgetReads();
    typeWrites_.insert(Key::of(type, name));
  }
  bool isTypeWritten(PyTypeObject* type, PyObject* name) const;
  // False when that global has been loaded before and nothing was written to it since.
  bool firstGlobal(PyObject* globals, PyObject* name) {
    return globals_.insert(Key::of(globals, name)).second;
  }
  // True when that attribute or key of a sourced object has been read, and so guarded, since the
  // last write: there is nothing new to note.
  bool wasRead(PyObject* object, PyObject* name) {
    return !reads_.insert(Key::of(object, name)).second;
  }
  void forgetReads() { reads_.clear(); }
  // Something unknown has run that may have changed everything: whatever is read from now on is
  // noted again, and what was written before may not be what it was written to be.
  void forgetWhatMayChange();
  // Both paths must lead to the same object, whatever happens: two functions of one module share
  // its globals, a closure cell is fixed in its function.
  static bool sameByNature(const ir::Trace& trace, common::SourceId first, common::SourceId second);

  // Functions and classes made by the program while recording.
  void addFresh(PyObject* function);
  bool isFresh(PyObject* function) const;

  Written* written(PyObject* container);
  Written& startWriting(PyObject* container, cpython::Ref snapshot);
  // The key was written since the recording began.
  bool isWritten(PyObject* container, PyObject* key);

 private:
  // What identifies a path, a guard or a look-up, as plain words.
  struct Key {
    uint64_t first = 0, second = 0, third = 0;
    static Key of(const void* a, const void* b) {
      return {reinterpret_cast<uintptr_t>(a), reinterpret_cast<uintptr_t>(b), 0};
    }
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      constexpr uint64_t kMix = 0x9E3779B97F4A7C15;
      uint64_t hash = (key.first * kMix) ^ (key.second + (key.first >> 29));
      hash = (hash * kMix) ^ (key.third + (hash >> 31));
      return (hash * kMix) >> 7;
    }
  };

  std::unordered_map<PyObject*, common::SourceId> sources_;
  std::unordered_map<common::SourceId, PyObject*> objects_;
  std::vector<cpython::Ref> alive_;
  std::vector<cpython::Ref> mortal_;                   // of Life::Call
  std::unordered_map<PyObject*, cpython::Ref> fresh_;  // -> weakref
  std::unordered_map<PyObject*, Written> written_;
  std::unordered_map<Key, common::SourceId, KeyHash> interned_;
  std::unordered_set<Key, KeyHash> guards_;
  std::unordered_set<Key, KeyHash> lookups_;
  std::unordered_set<Key, KeyHash> typeWrites_;
  std::unordered_set<Key, KeyHash> globals_;
  std::unordered_set<Key, KeyHash> reads_;
  std::unordered_set<PyObject*> entered_;
  std::unordered_map<std::string, cpython::Ref> tuples_;
  cpython::Ref strings_;  // dict: str -> the same str
};

// Immutable values that a guard can pin by comparing them: numbers, strings, None, dtypes, devices,
// and tuples, frozensets, slices and ranges of such.
bool isConstant(PyObject* object);
// Objects that a guard pins by identity: functions, classes, modules, descriptors, enum members...
bool isPinnable(PyObject* object);

}  // namespace glowplug::trace
