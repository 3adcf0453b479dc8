#pragma once

#include <Python.h>

#include <functional>
#include <vector>

#include "cpython/object_table.h"
#include "cpython/ref.h"
#include "ir/trace.h"

namespace glowplug::replay {

// What recipes take from the call that is being replayed. New references, or nullptr with a Python
// error set.
class RecipeInputs {
 public:
  virtual PyObject* value(common::ValueId id) = 0;
  virtual PyObject* source(common::SourceId id) = 0;

 protected:
  ~RecipeInputs() = default;
};

// Where recipes find what they refer to.
struct RecipeContext {
  const ir::Trace& trace;
  const cpython::ObjectTable& objects;
  RecipeInputs& inputs;
};

// What has been built in this call, by RecipeId: an object that two recipes share is built once.
using RecipeMemo = std::vector<cpython::Ref>;

// Builds the object. Nothing, with a Python error set, when it cannot be built.
//
// No code of the user's runs, apart from the __hash__ and __eq__ of keys: an object is allocated by
// the builtin base of its class, and instance dict, content and slots are put in place by the
// builtin types' own functions. An object is in the memo before its parts are built, so that it may
// contain itself.
cpython::Ref build(const RecipeContext& context, RecipeMemo& memo, common::RecipeId id);

// Whether objects of the class that an Object recipe names can be built: those made by Python
// classes over object and the builtin containers, numbers, strings and plain exceptions.
bool canBuild(const ir::Trace& trace, const ir::Recipe& recipe,
              const cpython::ObjectTable& objects);

// Calls visitor(recipe) for every recipe reachable from `roots`, once each.
void visitRecipes(const ir::Trace& trace, const std::vector<common::RecipeId>& roots,
                  const std::function<void(const ir::Recipe&)>& visitor);

}  // namespace glowplug::replay
