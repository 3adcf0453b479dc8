#pragma once

// Private to recipe*.cpp.

#include "replay/recipe.h"

namespace glowplug::replay {

class RecipeBuilder {
 public:
  RecipeBuilder(const RecipeContext& context, RecipeMemo& memo) : context_(context), memo_(memo) {}

  cpython::Ref build(common::RecipeId id);

 private:
  using Ref = cpython::Ref;

  Ref buildNew(common::RecipeId id, const ir::Recipe& recipe);
  Ref list(common::RecipeId id, const ir::Recipe& recipe);
  Ref tuple(common::RecipeId id, const ir::Recipe& recipe);
  Ref namedTuple(common::RecipeId id, const ir::Recipe& recipe);
  Ref dict(common::RecipeId id, const ir::Recipe& recipe);
  Ref set(common::RecipeId id, const ir::Recipe& recipe);
  Ref deque(common::RecipeId id, const ir::Recipe& recipe);
  Ref function(common::RecipeId id, const ir::Recipe& recipe);
  Ref cell(common::RecipeId id, const ir::Recipe& recipe);
  Ref partial(common::RecipeId id, const ir::Recipe& recipe);
  Ref composed(const ir::Recipe& recipe);

  // recipe_object.cpp
  Ref object(common::RecipeId id, const ir::Recipe& recipe);
  Ref allocate(common::RecipeId id, PyTypeObject* type, PyTypeObject* base,
               const ir::Recipe* content);
  bool fillContent(PyObject* made, PyTypeObject* base, const ir::Recipe& content);
  bool fillAttributes(PyObject* made, const ir::Recipe& recipe);

  const Ref& keep(common::RecipeId id, Ref made) { return memo_[id.index()] = std::move(made); }
  const ir::Recipe& recipe(common::RecipeId id) const { return context_.trace.recipes[id.index()]; }
  bool has(const ir::Recipe& recipe, size_t i) const {
    return i < recipe.children.size() && recipe.children[i].valid();
  }
  Ref child(const ir::Recipe& recipe, size_t i) { return build(recipe.children[i]); }
  Ref constant(const ir::Recipe& recipe) const;
  // Children from `first` on as a tuple of the class; it is in the memo as `id` if that is valid.
  Ref tupleOf(common::RecipeId id, PyTypeObject* type, const ir::Recipe& recipe, size_t first);
  bool fillTuple(PyObject* tuple, const ir::Recipe& recipe, size_t first);
  bool fillDict(PyObject* dict, const ir::Recipe& recipe, size_t first);
  bool fillSet(PyObject* set, const ir::Recipe& recipe);
  bool fillList(PyObject* list, const ir::Recipe& recipe);
  bool fillDeque(PyObject* deque, const ir::Recipe& recipe);

  const RecipeContext& context_;
  RecipeMemo& memo_;
};

// Classes of the standard library; borrowed, nullptr with an error set when the import fails.
PyTypeObject* defaultDictType();

}  // namespace glowplug::replay
