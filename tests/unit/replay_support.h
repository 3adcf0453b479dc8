#pragma once

// Traces made by hand out of small Python programs, and calls that replay them.

#include <Python.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/op_recorder.h"
#include "cpython/object_table.h"
#include "cpython/ref.h"
#include "python_support.h"
#include "replay/plan.h"

namespace glowplug::replay::testing {

using common::RecipeId;
using common::SourceId;
using common::ValueId;
using cpython::Ref;
using glowplug::testing::Python;
using ir::EffectKind;
using ir::RecipeKind;

// Builds one trace, step by step, while the program really runs.
class Program : public aten::OpSink {
 public:
  // Argument `name` of the program: a tensor becomes an Input, anything else a source.
  void argument(const char* name);
  // Runs code; its operators become events.
  void run(const std::string& code);
  // `name` is the number that the last operator gave to Python.
  void nameScalar(const char* name);
  void fork(const char* scalar);
  void forkOn(ValueId value, PyObject* expected);
  void sizes(const char* tensor);
  void effect(EffectKind kind, std::vector<std::string> operands, PyObject* keywords = nullptr);
  // operands: callable, then arguments. `result` is the name that takes what it returns.
  void opaque(std::vector<std::string> operands, bool logOnly, const char* result = nullptr);
  void returns(const std::string& expression);
  // The recipe of an expression's value, by its structure.
  RecipeId recipe(const std::string& expression);

  // Only for hand-made recipes.
  RecipeId add(ir::Recipe recipe);
  RecipeId constant(PyObject* object);
  common::ObjectId object(PyObject* object);

  // Runs the plan on these arguments (a list expression, in the order of argument()).
  // Gives the result, or nothing; `outcome` tells.
  Ref call(const std::string& arguments);
  // Goes on with this plan where another stopped.
  Ref resume(const std::string& arguments, Program& stopped);
  Plan& plan();
  void forgetObjects() { kept_.clear(); }

  void onOp(ir::Event event) override { trace.events.push_back(std::move(event)); }
  void onScalar(ValueId value, PyObject*) override { lastScalar_ = value; }
  void onRefuse(const char* reason, const std::string& detail) override {
    ADD_FAILURE() << reason << ": " << detail;
  }

  ir::Trace trace;
  cpython::ObjectTable objects;
  aten::OpTable ops;
  Outcome outcome;
  std::unique_ptr<Suspended> suspended;

 private:
  RecipeId recipeOf(PyObject* object);
  RecipeId fresh(PyObject* object);
  RecipeId composed(RecipeId id, PyObject* object);
  RecipeId parts(RecipeId id, std::initializer_list<PyObject*> objects);
  RecipeId instance(RecipeId id, PyObject* object);
  std::vector<Ref> fetch(PyObject* arguments);
  Ref done(Outcome outcome);

  std::unique_ptr<aten::OpRecorder> recorder_;
  std::unique_ptr<Plan> plan_;
  std::unordered_map<PyObject*, RecipeId> recipes_;
  std::unordered_map<PyObject*, SourceId> sources_;
  std::unordered_map<PyObject*, ValueId> scalars_;
  std::vector<Ref> kept_;
  ValueId lastScalar_;
};

}  // namespace glowplug::replay::testing
