#pragma once

#include <Python.h>

#include <unordered_set>
#include <vector>

#include "cpython/ref.h"
#include "ir/trace.h"

namespace glowplug::replay {

// What effects have changed, so that it can be put back as it was before them.
//
// A replay that has to stop after it committed effects lets the program run again from its start;
// the program then does those writes itself, from the state it had found.
class UndoLog {
 public:
  // Before the effect is done. False with a Python error set when its object cannot be copied.
  bool note(const ir::Event& event, const std::vector<cpython::Ref>& operands);
  bool empty() const { return places_.empty(); }

  // Puts everything back. What stands in these places now can be put there again by redo().
  bool undo();
  bool redo();

 private:
  // A container with its contents, a cell, or an attribute that stands in no dict.
  struct Place {
    cpython::Ref object;
    cpython::Ref name;  // of an attribute
    cpython::Ref before, after;
  };
  bool noteContents(PyObject* container);
  bool noteAttribute(PyObject* object, PyObject* name);

  std::vector<Place> places_;
  std::unordered_set<PyObject*> containers_;
};

// Writes an attribute as object's, type's or a module's own way of access does, whatever
// __setattr__ the class may have; value nullptr: deletes it. -1 with an error set.
int setAttribute(PyObject* object, PyObject* name, PyObject* value);

}  // namespace glowplug::replay
