#pragma once

#include <cstdint>
#include <vector>

#include "guard/walk.h"

namespace glowplug::guard {

// A trace's check as comparisons with what the last complete check found.
//
// Most of what a trace depends on hangs below objects that stay: module -> dict -> module -> dict
// ... With the same words in the same places (classes, dict versions, list items, weakrefs that are
// alive) the same objects are still there. Words are compared in an order in which each comparison
// makes the addresses of the next ones safe to read. Paths through objects that change from call to
// call are walked (`Branch`).
class FastProgram {
 public:
  // Whether the trace's guards hold. False may also mean that a complete check has to find out.
  bool run(const Call& call, Mask bit, Made& made);
  // After run() has said yes: adds the objects that were asked for.
  void fetch(std::vector<cpython::Ref>& fetched) const;

  bool valid() const { return valid_; }
  size_t checks() const;
  // After a complete check of the same trace: remembers which nodes have another object than here.
  void countChanges() const;

 private:
  friend class FastCompiler;

  struct Item {
    Node* node;
    PyObject* object;
    PyTypeObject* type;
    // Whether `now` (alive) stands at that address and is of that class. It need not be the same
    // object.
    bool isAt(PyObject* now) const { return now == object && Py_TYPE(now) == type; }
  };
  // A root that is the same object in every call.
  struct FixedRoot {
    Node* node;
    PyObject* object;
    cpython::HeldObject held;
  };
  struct ClassCheck {
    TypeState* state;
    const uint32_t* address;
    uint32_t version;
    uint32_t firstItem, endItem;  // classItems_
  };
  struct Word {
    const uint64_t* address;
    uint64_t expected;
  };
  // A word that is a dict's version or order. When it differs the dict is looked at again; what
  // comes after relies on the items [firstItem, endItem) of dictItems_.
  struct DictWord {
    uint32_t word;
    Node* node;
    PyObject* dict;
    uint32_t firstItem, endItem;
  };
  struct TensorCheck {
    const aten::TensorMeta* meta;
    PyObject* tensor;
  };
  // A predicate that words cannot express, on an object that stays.
  struct PredicateCheck {
    const Predicate* predicate;
    PyObject* object;
  };
  // A node that is walked: a root (no parent) or a child of an object that stays.
  struct Branch {
    Node* node;
    PyObject* parent;
  };
  // Where the object of a node is: fixed, or where a branch leaves it.
  struct Place {
    PyObject* fixed = nullptr;
    Node* node = nullptr;
    PyObject* object() const { return fixed ? fixed : node->object; }
  };
  struct SamenessCheck {
    Place first, second;
    bool same;
  };

  bool checkRoots(const Call& call) const;
  bool checkClasses(Mask bit);
  bool repairClass(ClassCheck& check, Mask bit);
  bool checkWords(Mask bit);
  bool repairWord(size_t word, Mask bit);
  bool checkObjects(Mask bit) const;

  bool valid_ = false;
  std::vector<FixedRoot> fixedRoots_;
  std::vector<Branch> rootBranches_;  // walked first: arguments are what differs most often
  std::vector<Word> livenessWords_;
  std::vector<ClassCheck> classes_;
  std::vector<Item> classItems_;
  std::vector<Word> words_;
  std::vector<DictWord> dictWords_;  // in the order of their words
  std::vector<Item> dictItems_;
  std::vector<TensorCheck> tensors_;
  std::vector<PredicateCheck> predicates_;
  std::vector<Branch> branches_;
  std::vector<SamenessCheck> sameness_;
  std::vector<Place> wanted_;
  std::vector<Item> fixed_;  // all nodes that are not in branches, parents first
};

// Makes the program of the trace with that bit, which has just passed a complete check.
FastProgram compileFast(const std::vector<std::unique_ptr<Node>>& roots, Mask bit,
                        const std::vector<Sameness>& sameness, const std::vector<Node*>& wanted);

}  // namespace glowplug::guard
