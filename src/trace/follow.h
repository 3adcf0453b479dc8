#pragma once

#include <Python.h>

#include "aten/op_feed.h"
#include "common/ids.h"

namespace glowplug::trace {

// A replay that has stopped, as the recording sees it that runs the program again up to there:
// what the replay has done is not done a second time.
class Follow {
 public:
  virtual aten::OpFeed& operators() = 0;
  // An opaque call is left that the replay has done.
  virtual bool opaquePending() const = 0;
  // The program's own code has run in it, and may have changed anything.
  virtual bool programRan() const = 0;
  // Its result: new reference, or nullptr with the error that it raised.
  virtual PyObject* takeOpaque() = 0;
  // What the replay built by that recipe for a call that may have changed it; borrowed, or nullptr.
  virtual PyObject* built(common::RecipeId id) const = 0;

 protected:
  ~Follow() = default;
};

}  // namespace glowplug::trace
