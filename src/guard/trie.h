#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "guard/fast_program.h"
#include "guard/guard_tree.h"
#include "guard/node.h"
#include "guard/walk.h"

namespace glowplug::guard {

// What the tree knows of one trace.
struct TraceState {
  const ir::Trace* trace = nullptr;
  const cpython::ObjectTable* objects = nullptr;
  const aten::OpTable* ops = nullptr;
  std::vector<size_t> chosen;  // the guards of the trace that are meant
  // Not by index: a trace with many late checks has a tree for each, of a few of its guards.
  std::unordered_map<common::SourceId, Node*> nodes;
  std::vector<Node*> wanted;
  // Of the chosen guards; nullptr: of two nodes, or what it speaks of was gone.
  std::vector<const Predicate*> predicates;
  std::vector<Sameness> sameness;
  // The call's shape.
  size_t positional = 0;
  cpython::Ref kwnames;                     // tuple; absent when there were no keyword arguments
  std::vector<cpython::HeldObject> needed;  // dead for ever when one of these dies
  bool impossible = false;  // what a guard speaks of had died before the trace was added
  FastProgram program;
  uint32_t slowPasses = 0;  // since the program passed last
  size_t guards = 0;

  bool shapeMatches(const Call& call) const;
};

// Access paths of all traces and the predicates on them.
class Trie {
 public:
  // Adds what the trace needs, under `bit`; fills in the state's nodes and what goes with them.
  void add(TraceState& state, const std::vector<common::SourceId>& wanted, const Call& call,
           Mask bit);
  void remove(Mask bits);

  const std::vector<std::unique_ptr<Node>>& roots() const { return roots_; }

 private:
  class Builder;

  Node& childOf(Node* parent, const ir::Source& source, PyObject* object,
                const cpython::HeldObject& held);
  TypeState& classState(PyTypeObject* type);

  std::vector<std::unique_ptr<Node>> roots_;
  std::vector<std::unique_ptr<TypeState>> classes_;
  std::unordered_map<PyTypeObject*, TypeState*> classOf_;
  std::unordered_map<PyObject*, Node*> pinned_;
};

}  // namespace glowplug::guard
