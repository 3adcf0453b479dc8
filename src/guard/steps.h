#pragma once

#include <Python.h>

#include <vector>

#include "cpython/ref.h"
#include "guard/guard_tree.h"
#include "guard/node.h"

namespace glowplug::guard {

// Objects that a step had to make (a tensor's .grad, a C attribute) live until the check is over.
using Made = std::vector<cpython::Ref>;

// The object that the root names in this call, borrowed, or nullptr.
PyObject* fetchRoot(const Node& root, const Call& call);
// The object one step below `parent`, borrowed, or nullptr when there is none.
PyObject* fetchStep(const Node& node, PyObject* parent, Made& made);
// Where a fixed place in `parent` holds that object, for steps that read one; nullptr for other
// steps.
PyObject** placeOf(const Node& node, PyObject* parent);

// collections.deque and its subclasses.
bool isDeque(PyObject* object);

}  // namespace glowplug::guard
