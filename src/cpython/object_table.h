#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "cpython/ref.h"

namespace glowplug::cpython {

// The Python objects that one trace names. What can be held weakly and is not a plain value
// (functions, classes, modules, user objects) is held weakly, so that no cache keeps a user's
// object alive; values (numbers, strings, tuples of such, code objects, dtypes...) are held
// strongly.
class ObjectTable {
 public:
  // The id of `object`, by identity: the same object gives the same id.
  common::ObjectId add(PyObject* object);
  // Borrowed; nullptr when a weakly held object has died.
  PyObject* get(common::ObjectId id) const;
  bool isWeak(common::ObjectId id) const;
  // The object has an id, and a weak reference of the table's is one of its.
  bool holdsWeakly(PyObject* object) const;
  // Short text for printing: repr of values, qualified names of functions, classes and modules.
  static std::string describe(PyObject* object);
  size_t size() const { return entries_.size(); }
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Entry {
    Ref strong;  // the object, or a weakref to it
    bool weak = false;
  };
  std::vector<Entry> entries_;
  std::unordered_map<PyObject*, common::ObjectId> ids_;
};

}  // namespace glowplug::cpython
