#pragma once

#include <Python.h>

#include <memory>

#include "aten/op_feed.h"
#include "replay/plan.h"

namespace glowplug::replay {

// A replay that had to stop after something that cannot be taken back, for the program to be run
// again up to that point. Operators and opaque calls are not done a second time: their results are
// those of the replay. Effects that the replay committed are undone first, since the program does
// them itself.
class Rerun {
 public:
  explicit Rerun(std::unique_ptr<Suspended> suspended);
  ~Rerun();

  // Puts back what was committed. False with a Python error set when that fails.
  bool begin();
  aten::OpFeed& operators();
  // An opaque call is left that the replay has done.
  bool opaquePending() const;
  // The program's own code has run in it.
  bool programRan() const;
  // Its result: new reference, or nullptr with the error that it raised.
  PyObject* takeOpaque();
  // The object that the replay built, borrowed, or nullptr.
  PyObject* built(common::RecipeId id) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace glowplug::replay
