#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "aten/op_table.h"
#include "cpython/held_object.h"
#include "guard/type_state.h"
#include "ir/trace.h"

namespace glowplug::guard {

struct Node;

// What a function runs with.
struct FunctionState {
  cpython::HeldObject code;
  cpython::HeldObject defaults;
  bool hasKeywords = false;  // __kwdefaults__ is a dict, of these items
  std::vector<std::pair<cpython::Ref, cpython::HeldObject>> keywordItems;

  static FunctionState of(PyObject* function);
  bool holds(PyObject* function) const;
  bool sameAs(const FunctionState& other) const;
};

// One assumption about the object at a node, for the traces of its mask.
struct Predicate {
  ir::PredicateKind kind = ir::PredicateKind::TypeIs;
  Mask mask = 0;
  cpython::Ref constant;         // ConstEq, Missing, DictKeys, SetEq, Unset (may be absent)
  Py_hash_t hash = -1;           // of the key, Missing
  cpython::HeldObject identity;  // IdentityIs
  TypeState* type = nullptr;     // TypeIs, AttrIs, AttrMissing
  size_t name = 0;               // AttrIs, AttrMissing: of `type`
  int64_t number = 0;            // Length
  const aten::TensorMeta* meta = nullptr;   // TensorMeta
  std::unique_ptr<FunctionState> function;  // FunctionSame

  // Depends on nothing but which object it is, so an unchanged dict answers it for its items.
  bool folds() const;
};

// One access path. Paths of several traces that are the same are one node.
struct Node {
  ir::StepKind step = ir::StepKind::Callee;
  Node* parent = nullptr;
  cpython::Ref key;            // Key payload; a key that may not be kept alive is `pinned`
  Py_hash_t hash = -1;         // of the key
  int64_t index = 0;           // Index payload
  cpython::HeldObject pinned;  // Object payload
  Mask mask = 0;               // traces that need an object here
  std::vector<std::unique_ptr<Node>> children;
  std::vector<std::unique_ptr<Predicate>> predicates;

  // The object found by the walk that is under way, borrowed. Below a dict it is the item as of
  // `version` of the parent.
  PyObject* object = nullptr;

  // Of a node whose dict's items or keys are looked at: the state of the dict that was looked at
  // last and the traces that it satisfies.
  bool isDict = false;   // has DictItem children, or predicates on the keys
  bool ordered = false;  // the order of the keys matters to a trace
  uint64_t version = 0;
  uint64_t orderState = 0;
  Mask passing = 0;

  bool needsVisit = false;  // more than folded predicates
  // Times a faster check was lost because another object stood here.
  uint32_t changes = 0;

  PyObject* keyObject() const { return key ? key.get() : pinned.get(); }
  bool isKey() const { return step == ir::StepKind::DictItem; }
};

// Predicates that only the contents of the dict answer.
bool looksAtKeys(ir::PredicateKind kind);

// Brings the derived fields (isDict, ordered, needsVisit) up to date and forgets cached results.
void refreshShape(Node& node);

}  // namespace glowplug::guard
