#include "guard/trie.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "cpython/constant.h"
#include "guard/predicates.h"
#include "ir/tables.h"

namespace glowplug::guard {

using common::ObjectId;
using common::SourceId;
using cpython::HeldObject;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

namespace {

Py_hash_t hashOf(PyObject* key) {
  Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) PyErr_Clear();
  return hash;
}

bool needsHash(PredicateKind kind) {
  return kind == PredicateKind::Missing || kind == PredicateKind::Contains ||
         kind == PredicateKind::Lacks;
}

// A look-up's expected outcome may be recorded as a weakref to it.
PyObject* recordedValue(PyObject* value, PyObject* now) {
  if (value == now || !PyWeakref_CheckRefExact(value)) return value;
  PyObject* object = PyWeakref_GET_OBJECT(value);
  return object == Py_None ? nullptr : object;
}

bool sameConstant(const Ref& a, const Ref& b) {
  if (!a || !b) return !a && !b;
  return cpython::constantsEqual(a.get(), b.get());
}

bool samePredicate(const Predicate& a, const Predicate& b) {
  if (a.kind != b.kind || a.type != b.type || a.name != b.name || a.number != b.number)
    return false;
  if (a.meta != b.meta || !sameConstant(a.constant, b.constant)) return false;
  if (!a.function != !b.function) return false;
  if (a.function && !a.function->sameAs(*b.function)) return false;
  return a.identity.isNothing() == b.identity.isNothing() &&
         (a.identity.isNothing() || a.identity.sameAs(b.identity));
}

bool isKey(const Node& node, PyObject* object) {
  if (!object || !node.keyObject()) return false;
  return cpython::constantsEqual(node.keyObject(), object);
}

void prune(std::vector<std::unique_ptr<Node>>& nodes, Mask keep) {
  for (auto& node : nodes) {
    if (!(node->mask & ~keep)) continue;
    node->mask &= keep;
    for (auto& predicate : node->predicates) predicate->mask &= keep;
    std::erase_if(node->predicates, [](const auto& predicate) { return predicate->mask == 0; });
    prune(node->children, keep);
    refreshShape(*node);
  }
  std::erase_if(nodes, [](const auto& node) { return node->mask == 0; });
}

}  // namespace

bool TraceState::shapeMatches(const Call& call) const {
  if (call.positional != positional) return false;
  const Py_ssize_t names = call.kwnames ? PyTuple_GET_SIZE(call.kwnames) : 0;
  const Py_ssize_t expected = kwnames ? PyTuple_GET_SIZE(kwnames.get()) : 0;
  if (names != expected) return false;
  if (names == 0 || call.kwnames == kwnames.get()) return true;
  return cpython::constantsEqual(call.kwnames, kwnames.get());
}

// Adds one trace.
class Trie::Builder {
 public:
  Builder(Trie& trie, TraceState& state, const Call& call, Mask bit)
      : trie_(trie), state_(state), call_(call), bit_(bit) {}

  Node* nodeAt(SourceId source);
  // The predicate in the trie; nullptr for what relates two nodes.
  const Predicate* add(const ir::Guard& guard);
  void finish() {
    for (const auto& [source, node] : state_.nodes) refreshShape(*node);
  }

 private:
  PyObject* object(ObjectId id) const { return id.valid() ? state_.objects->get(id) : nullptr; }
  // What the trace's table keeps alive anyway, it keeps for the trie as well.
  HeldObject hold(ObjectId id) const {
    return id.valid() && !state_.objects->isWeak(id) ? HeldObject::keptElsewhere(object(id))
                                                     : HeldObject::of(object(id));
  }
  PyObject* now(Node& node);
  void need(const HeldObject& held) {
    if (!held.isStrong()) state_.needed.push_back(held);
  }
  bool setConstant(Predicate& predicate, ObjectId id);
  void setClass(Predicate& predicate, const ir::Guard& guard);
  void setName(Predicate& predicate, const ir::Guard& guard, Node& node);

  Trie& trie_;
  TraceState& state_;
  const Call& call_;
  Mask bit_;
  Made made_;
  std::unordered_map<Node*, PyObject*> now_;
};

Node* Trie::Builder::nodeAt(SourceId id) {
  GP_CHECK(id.valid() && id.index() < state_.trace->sources.size(), "source of a guard");
  Node*& node = state_.nodes[id];
  if (node) return node;
  const ir::Source& source = state_.trace->sources[id.index()];
  Node* parent = source.parent.valid() ? nodeAt(source.parent) : nullptr;
  node = &trie_.childOf(parent, source, object(source.object), hold(source.object));
  node->mask |= bit_;
  if (!node->pinned.isNothing()) need(node->pinned);
  return node;
}

// The object at the node in the call that the trace was recorded with, as far as it is still there.
PyObject* Trie::Builder::now(Node& node) {
  auto [entry, fresh] = now_.emplace(&node, nullptr);
  if (!fresh) return entry->second;
  PyObject* parent = node.parent ? now(*node.parent) : nullptr;
  PyObject* found = !node.parent ? fetchRoot(node, call_)
                    : parent     ? fetchStep(node, parent, made_)
                                 : nullptr;
  return now_[&node] = found;
}

// What may not be kept alive is compared by identity.
bool Trie::Builder::setConstant(Predicate& predicate, ObjectId id) {
  PyObject* value = object(id);
  if (!value) return false;
  const bool whole =  // the payload holds what it names
      predicate.kind == PredicateKind::DictKeys || predicate.kind == PredicateKind::SetEq;
  if (predicate.kind == PredicateKind::IdentityIs || (!whole && !cpython::mayHoldStrongly(value))) {
    predicate.identity = hold(id);
    need(predicate.identity);
  } else {
    predicate.constant = Ref::borrow(value);
  }
  return true;
}

void Trie::Builder::setClass(Predicate& predicate, const ir::Guard& guard) {
  PyObject* type = object(guard.object);
  if (!type || !PyType_Check(type)) return;
  predicate.type = &trie_.classState(reinterpret_cast<PyTypeObject*>(type));
  predicate.type->add(bit_);
}

void Trie::Builder::setName(Predicate& predicate, const ir::Guard& guard, Node& node) {
  PyObject* type = now(node);
  PyObject* payload = object(guard.object);
  if (!type || !PyType_Check(type) || !payload) return;
  PyObject* name = payload;
  PyObject* value = nullptr;
  if (guard.kind == PredicateKind::AttrIs) {
    if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 2) return;
    name = PyTuple_GET_ITEM(payload, 0);
    value = recordedValue(PyTuple_GET_ITEM(payload, 1),
                          _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type), name));
    if (!value) return;
    need(HeldObject::of(value));
  }
  predicate.type = &trie_.classState(reinterpret_cast<PyTypeObject*>(type));
  predicate.name = predicate.type->addName(name, value, bit_);
}

const Predicate* Trie::Builder::add(const ir::Guard& guard) {
  Node& node = *nodeAt(guard.source);
  state_.guards++;
  Predicate predicate;
  predicate.kind = guard.kind;
  predicate.mask = bit_;
  bool possible = true;
  switch (ir::info(guard.kind).payload) {
    case ir::Payload::Other:
      state_.sameness.push_back({&node, nodeAt(guard.other), guard.kind == PredicateKind::SameAs});
      return nullptr;
    case ir::Payload::Number:
      predicate.number = guard.number;
      break;
    case ir::Payload::Meta:
      predicate.meta = state_.ops->meta(guard.meta);
      break;
    case ir::Payload::Object:
      if (guard.kind == PredicateKind::TypeIs) {
        setClass(predicate, guard);
        possible = predicate.type != nullptr;
      } else if (guard.kind == PredicateKind::AttrIs || guard.kind == PredicateKind::AttrMissing) {
        setName(predicate, guard, node);
        possible = predicate.type != nullptr;
      } else if (guard.object.valid()) {
        possible = setConstant(predicate, guard.object);
        if (possible && needsHash(guard.kind)) predicate.hash = hashOf(object(guard.object));
      }
      break;
    default:
      break;
  }
  if (guard.kind == PredicateKind::FunctionSame) {
    PyObject* function = now(node);
    possible = function && PyFunction_Check(function);
    if (possible) predicate.function = std::make_unique<FunctionState>(FunctionState::of(function));
  }
  if (!possible) {  // what the guard speaks of is gone already
    state_.impossible = true;
    return nullptr;
  }
  for (auto& known : node.predicates)
    if (samePredicate(*known, predicate)) {
      known->mask |= bit_;
      return known.get();
    }
  node.predicates.push_back(std::make_unique<Predicate>(std::move(predicate)));
  return node.predicates.back().get();
}

Node& Trie::childOf(Node* parent, const ir::Source& source, PyObject* object,
                    const HeldObject& held) {
  auto& siblings = parent ? parent->children : roots_;
  const ir::Payload payload = ir::info(source.step).payload;
  const Py_hash_t hash = payload == ir::Payload::Key && object ? hashOf(object) : -1;
  if (source.step == StepKind::Pinned) {
    auto known = pinned_.find(object);
    if (known != pinned_.end() && object && known->second->pinned.is(object)) return *known->second;
  } else {
    for (const auto& node : siblings) {
      if (node->step != source.step || node->hash != hash) continue;
      if (payload == ir::Payload::Index && node->index != source.index) continue;
      if (payload == ir::Payload::Key && !isKey(*node, object)) continue;
      return *node;
    }
  }
  GP_CHECK(payload != ir::Payload::Key || source.step == StepKind::DictItem ||
               (object && PyUnicode_CheckExact(object)),
           "name in an access path");
  auto node = std::make_unique<Node>();
  node->step = source.step;
  node->parent = parent;
  node->index = source.index;
  node->hash = hash;
  if (payload == ir::Payload::Key && object && cpython::mayHoldStrongly(object))
    node->key = Ref::borrow(object);
  else
    node->pinned = held;
  if (source.step == StepKind::Pinned && object) pinned_[object] = node.get();
  siblings.push_back(std::move(node));
  return *siblings.back();
}

TypeState& Trie::classState(PyTypeObject* type) {
  auto known = classOf_.find(type);
  // Another class may have had this address.
  if (known != classOf_.end() && !known->second->isDead()) return *known->second;
  classes_.push_back(std::make_unique<TypeState>(type));
  classOf_[type] = classes_.back().get();
  return *classes_.back();
}

void Trie::add(TraceState& state, const std::vector<SourceId>& wanted, const Call& call, Mask bit) {
  Builder builder(*this, state, call, bit);
  for (size_t i : state.chosen) state.predicates.push_back(builder.add(state.trace->guards[i]));
  for (SourceId source : wanted) state.wanted.push_back(builder.nodeAt(source));
  builder.finish();
  // Arguments are what differs most often.
  std::stable_sort(roots_.begin(), roots_.end(), [](const auto& a, const auto& b) {
    auto rank = [](StepKind step) {
      return step == StepKind::Arg ? 0 : step == StepKind::Kwarg ? 1 : 2;
    };
    return rank(a->step) < rank(b->step);
  });
}

void Trie::remove(Mask bits) {
  prune(roots_, ~bits);
  for (auto& state : classes_) state->remove(bits);
  std::erase_if(classOf_, [](const auto& entry) { return entry.second->mask() == 0; });
  std::erase_if(classes_, [](const auto& state) { return state->mask() == 0; });
  pinned_.clear();
  for (const auto& root : roots_)
    if (root->step == StepKind::Pinned && root->pinned.address())
      pinned_[root->pinned.address()] = root.get();
}

}  // namespace glowplug::guard
