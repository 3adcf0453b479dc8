#include "guard/node.h"

#include "cpython/object_fields.h"

namespace glowplug::guard {

using cpython::HeldObject;
using cpython::Ref;
using ir::PredicateKind;

FunctionState FunctionState::of(PyObject* function) {
  FunctionState state;
  cpython::FunctionFields fields = cpython::functionFields(function);
  state.code = HeldObject::of(*fields.code);
  state.defaults = HeldObject::of(*fields.defaults);
  state.hasKeywords = *fields.kwdefaults != nullptr;
  if (state.hasKeywords) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(*fields.kwdefaults, &position, &key, &value))
      state.keywordItems.emplace_back(Ref::borrow(key), HeldObject::of(value));
  }
  return state;
}

bool FunctionState::holds(PyObject* function) const {
  cpython::FunctionFields fields = cpython::functionFields(function);
  if (!code.is(*fields.code) || !defaults.is(*fields.defaults)) return false;
  PyObject* dict = *fields.kwdefaults;
  if (!dict || !hasKeywords) return !dict && !hasKeywords;
  if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(keywordItems.size())) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (const auto& [name, held] : keywordItems) {
    if (!PyDict_Next(dict, &position, &key, &value)) return false;
    if (key != name.get() || !held.is(value)) return false;
  }
  return true;
}

bool FunctionState::sameAs(const FunctionState& other) const {
  if (!code.sameAs(other.code) || !defaults.sameAs(other.defaults)) return false;
  if (hasKeywords != other.hasKeywords || keywordItems.size() != other.keywordItems.size())
    return false;
  for (size_t i = 0; i < keywordItems.size(); i++) {
    const auto& [name, held] = keywordItems[i];
    const auto& [otherName, otherHeld] = other.keywordItems[i];
    if (name.get() != otherName.get() || !held.sameAs(otherHeld)) return false;
  }
  return true;
}

bool Predicate::folds() const {
  switch (kind) {
    case PredicateKind::ConstEq:
    case PredicateKind::IdentityIs:
      return true;
    case PredicateKind::TypeIs:
      // Objects of a class that cannot be changed stay in it, except modules.
      return type->immutable() && !PyType_IsSubtype(type->type(), &PyModule_Type);
    default:
      return false;
  }
}

bool looksAtKeys(PredicateKind kind) {
  return kind == PredicateKind::Missing || kind == PredicateKind::DictKeys;
}

void refreshShape(Node& node) {
  node.isDict = node.ordered = node.needsVisit = false;
  node.version = 0;
  for (const auto& predicate : node.predicates) {
    node.isDict |= looksAtKeys(predicate->kind);
    node.ordered |= predicate->kind == PredicateKind::DictKeys;
    node.needsVisit |= !predicate->folds();
  }
  for (const auto& child : node.children) node.isDict |= child->isKey();
  node.needsVisit |= !node.children.empty();
}

}  // namespace glowplug::guard
