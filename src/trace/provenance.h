#pragma once

#include <Python.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/ids.h"
#include "cpython/ref.h"
#include "ir/trace.h"

namespace glowplug::trace {

// Which objects came from outside, by identity, and what the program has written to them since.
//
// Sourced objects are held strongly while the recording lasts, so that an address cannot come to mean
// another object.
class Provenance {
 public:
  // A container (dict, list, set...) that existed before and was written. What it held before the first
  // write is kept, because a read of the parts that were not written is a read of that state.
  struct Written {
    cpython::Ref snapshot;        // shallow copy taken before the first write
    cpython::Ref keys;            // set of the keys written
    bool whole = false;           // everything was read (guarded) or replaced: behaves as fresh now
  };

  common::SourceId find(PyObject* object) const {
    auto it = sources_.find(object);
    return it == sources_.end() ? common::SourceId() : it->second;
  }
  void remember(PyObject* object, common::SourceId source);

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
    return lookups_.insert(std::pair{type, name}).second;
  }
  // False when that global has been loaded before and nothing was written to it since.
  bool firstGlobal(PyObject* globals, PyObject* name) {
    return globals_.insert(std::pair{globals, name}).second;
  }
  // Both paths must lead to the same object, whatever happens: two functions of one module share its
  // globals, a closure cell is fixed in its function.
  static bool sameByNature(const ir::Trace& trace, common::SourceId first, common::SourceId second);

  // Functions made by the program while recording.
  void addFreshFunction(PyObject* function);
  bool isFreshFunction(PyObject* function) const;

  Written* written(PyObject* container);
  Written& startWriting(PyObject* container, cpython::Ref snapshot);
  // The key was written since the recording began.
  bool isWritten(PyObject* container, PyObject* key);

 private:
  std::unordered_map<PyObject*, common::SourceId> sources_;
  std::vector<cpython::Ref> alive_;
  std::unordered_map<PyObject*, cpython::Ref> freshFunctions_;  // -> weakref
  std::unordered_map<PyObject*, Written> written_;
  std::map<std::tuple<ir::StepKind, uint32_t, uint32_t, int64_t>, common::SourceId> interned_;
  std::set<std::tuple<ir::PredicateKind, uint32_t, uint32_t, uint32_t, int64_t>> guards_;
  std::set<std::pair<PyTypeObject*, PyObject*>> lookups_;
  std::set<std::pair<PyObject*, PyObject*>> globals_;
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
