#pragma once

#include <vector>

#include "guard/node.h"
#include "guard/steps.h"

namespace glowplug::guard {

// The traces that the contents of the dict satisfy as far as `node` looks at them: its keys, its
// items and what folds of them. Answered from the node while the dict's version is the one seen
// last. Leaves the items in the children's `object`.
Mask dictPassing(Node& node, PyObject* dict);

// Two nodes whose objects must be the same one, or must not be.
struct Sameness {
  Node* first = nullptr;
  Node* second = nullptr;
  bool same = true;
};

// The complete check: visits what the live traces need and strikes out those whose guards do not
// hold. Nodes of a trace that is live at the end have their objects of this call.
class Walk {
 public:
  // made: takes what the check makes.
  Walk(Mask live, Made& made) : live_(live), made_(made) {}

  void root(Node& node, const Call& call);
  // Checks `node` with `object` at it and all below.
  void visit(Node& node, PyObject* object);
  // Fetches a child of `parent` and visits it.
  void step(Node& node, PyObject* parent);

  Mask live() const { return live_; }
  void strike(Mask bits) { live_ &= ~bits; }

 private:
  void visitItems(Node& node, PyObject* dict);

  Mask live_;
  Made& made_;
};

}  // namespace glowplug::guard
