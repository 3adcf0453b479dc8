#pragma once

#include <Python.h>

#include <unordered_set>
#include <vector>

#include "cpython/ref.h"

namespace glowplug::cpython {

// What Python objects were before they were written to, so that it can be put back.
//
// The note methods are called before the write, at least once for each place; they return false
// with a Python error set when the object cannot be copied.
class UndoLog {
 public:
  bool noteAttribute(PyObject* object, PyObject* name);
  // A dict, list, set or deque, or an instance of a subclass of one; of all else nothing is kept.
  bool noteContents(PyObject* container);
  void noteCell(PyObject* cell);
  bool empty() const { return places_.empty(); }

  // Puts everything back. What stands in these places now can be put there again by redo().
  bool undo();
  bool redo();

 private:
  // A container with its contents, a cell, or an attribute that stands in no dict.
  struct Place {
    Ref object;
    Ref name;  // of an attribute
    Ref before, after;
  };
  std::vector<Place> places_;
  std::unordered_set<PyObject*> containers_;
};

// Writes an attribute as object's, type's or a module's own way of access does, whatever
// __setattr__ the class may have; value nullptr: deletes it. -1 with an error set.
int setAttribute(PyObject* object, PyObject* name, PyObject* value);

}  // namespace glowplug::cpython
