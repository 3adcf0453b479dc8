#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aten/op_table.h"
#include "cpython/object_table.h"
#include "cpython/ref.h"
#include "ir/trace.h"

namespace glowplug::guard {

// Objects that are there only in the middle of a call, by number (StepKind::Result and Built);
// borrowed, or nullptr.
class LateObjects {
 public:
  virtual PyObject* result(common::ValueId id) const = 0;
  virtual PyObject* built(common::RecipeId id) const = 0;

 protected:
  ~LateObjects() = default;
};

// The call that is checked. args as vectorcall has them: positional, then one per name of kwnames.
struct Call {
  PyObject* callee = nullptr;
  PyObject* const* args = nullptr;
  size_t positional = 0;
  PyObject* kwnames = nullptr;  // tuple or nullptr
  const LateObjects* late = nullptr;
};

// A guard that did not hold, in words.
struct Failure {
  ir::Guard guard;
  std::string path;      // "L.self.layers[3].scale"
  std::string expected;  // "2.0"
  std::string found;     // "5.0"
  ir::Site site;
};

// The guards of all traces of one entry: one trie of access paths whose nodes carry predicates,
// each with the set of traces that need it. Version tags of dicts and types make a check of an
// unchanged object one comparison; on a changed tag the keys used are checked again and the tag is
// refreshed.
//
// Nothing that a user could see die is kept alive. All members need the GIL, and keep it: no Python
// code runs in them before they have what they give, and so no other thread comes in between.
class GuardTree {
 public:
  static constexpr size_t kMaxTraces = 64;

  GuardTree();
  ~GuardTree();

  // Adds a trace's guards. The tables must outlive the trace here. `wanted`: sources whose objects
  // a replay needs, in order. Returns the trace's number. The arguments of `call` are those it was
  // recorded with.
  size_t add(const ir::Trace& trace, const cpython::ObjectTable& objects, const aten::OpTable& ops,
             const std::vector<common::SourceId>& wanted, const Call& call);
  void remove(size_t number);

  // The most recently used trace whose guards all hold, or nothing. On success fetched[i] is the
  // object at the trace's i-th wanted source.
  std::optional<size_t> match(const Call& call, std::vector<cpython::Ref>& fetched);
  // The same for one trace.
  bool holds(size_t number, const Call& call, std::vector<cpython::Ref>& fetched);
  // The first guard of that trace that does not hold for this call.
  std::optional<Failure> explain(size_t number, const Call& call) const;
  // A weakly held object that it needs has died, so it can never hold again.
  bool isDead(size_t number) const;

  // For reports: number of guards, of nodes, of entries of the fast path.
  struct Size {
    size_t guards = 0, nodes = 0, fastChecks = 0;
  };
  Size size(size_t number) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "L.self.layers[3].weight" for a source.
std::string pathText(const ir::Trace& trace, common::SourceId source);

}  // namespace glowplug::guard
