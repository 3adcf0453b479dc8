#include "guard/walk.h"

#include "cpython/version_tags.h"
#include "guard/predicates.h"

namespace glowplug::guard {

namespace {

// The order of an OrderedDict is not part of its version.
bool orderChanged(const Node& node, PyObject* dict) {
  return node.ordered && cpython::isOrderedDict(dict) &&
         *cpython::orderStateAddress(dict) != node.orderState;
}

void lookUpItem(Node& child, PyObject* dict, Mask& passing) {
  PyObject* key = child.keyObject();
  PyObject* value = nullptr;
  if (!key || cpython::dictFind(dict, key, child.hash, &value) != cpython::Found::Yes) {
    child.object = nullptr;
    passing &= ~child.mask;
    return;
  }
  child.object = value;
  for (const auto& predicate : child.predicates)
    if (predicate->folds()) passing &= ~(predicate->mask & ~holding(*predicate, value));
}

}  // namespace

Mask dictPassing(Node& node, PyObject* dict) {
  const uint64_t version = cpython::dictVersion(dict);
  if (version == node.version && !orderChanged(node, dict)) return node.passing;
  Mask passing = node.mask;
  for (const auto& predicate : node.predicates)
    if (looksAtKeys(predicate->kind)) passing &= ~(predicate->mask & ~holding(*predicate, dict));
  for (const auto& child : node.children)
    if (child->isKey()) lookUpItem(*child, dict, passing);
  node.version = version;
  if (node.ordered && cpython::isOrderedDict(dict))
    node.orderState = *cpython::orderStateAddress(dict);
  node.passing = passing;
  return passing;
}

void Walk::root(Node& node, const Call& call) {
  if (!(node.mask & live_)) return;
  PyObject* object = fetchRoot(node, call);
  if (!object) return strike(node.mask);
  visit(node, object);
}

void Walk::step(Node& node, PyObject* parent) {
  if (!(node.mask & live_)) return;
  PyObject* object = fetchStep(node, parent, made_);
  if (!object) return strike(node.mask);
  if (node.isKey()) {
    // Not by way of the parent's cached answers, which therefore no longer speak of this item.
    if (node.object != object) node.parent->version = 0;
    for (const auto& predicate : node.predicates)
      if (predicate->folds()) strike(predicate->mask & ~holding(*predicate, object));
  }
  visit(node, object);
}

void Walk::visit(Node& node, PyObject* object) {
  node.object = object;
  for (const auto& predicate : node.predicates) {
    // Folded predicates of an item were answered with the dict.
    if (!(predicate->mask & live_) || looksAtKeys(predicate->kind)) continue;
    if (node.isKey() && predicate->folds()) continue;
    strike(predicate->mask & ~holding(*predicate, object));
  }
  if (node.isDict) visitItems(node, object);
  for (const auto& child : node.children) {
    if (!(node.mask & live_)) return;
    if (!child->isKey()) step(*child, object);
  }
}

void Walk::visitItems(Node& node, PyObject* dict) {
  if (!PyDict_Check(dict)) {
    for (const auto& predicate : node.predicates)
      if (looksAtKeys(predicate->kind)) strike(predicate->mask);
    for (const auto& child : node.children)
      if (child->isKey()) strike(child->mask);
    return;
  }
  strike(node.mask & ~dictPassing(node, dict));
  for (const auto& child : node.children)
    if (child->isKey() && child->needsVisit && (child->mask & live_)) visit(*child, child->object);
}

}  // namespace glowplug::guard
