#pragma once

#include <Python.h>

#include <functional>
#include <vector>

#include "cpython/object_table.h"
#include "cpython/ref.h"
#include "ir/trace.h"

namespace glowplug::replay {

// Where recipes find what they refer to.
struct RecipeContext {
  const ir::Trace& trace;
  const cpython::ObjectTable& objects;
  // New references, or nullptr with a Python error set.
  std::function<PyObject*(common::ValueId)> value;
  std::function<PyObject*(common::SourceId)> source;
};

// What has been built in this call, by RecipeId: an object that two recipes share is built once.
using RecipeMemo = std::vector<cpython::Ref>;

// Builds the object. Nothing with a Python error set when it cannot be built.
cpython::Ref build(const RecipeContext& context, RecipeMemo& memo, common::RecipeId id);

// Calls visitor(recipe) for every recipe reachable from `roots`, once each.
void visitRecipes(const ir::Trace& trace, const std::vector<common::RecipeId>& roots,
                  const std::function<void(const ir::Recipe&)>& visitor);

}  // namespace glowplug::replay
