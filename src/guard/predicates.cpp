#include "guard/predicates.h"

#include <fmt/format.h>

#include "cpython/constant.h"
#include "cpython/object_fields.h"
#include "cpython/object_table.h"
#include "cpython/version_tags.h"
#include "guard/steps.h"

namespace glowplug::guard {

using cpython::ObjectTable;
using ir::PredicateKind;

namespace {

bool keysMatch(PyObject* dict, PyObject* expected) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(expected)) return false;
  cpython::DictKeys keys(dict);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); i++) {
    PyObject* key = keys.next();
    if (!key || !cpython::constantsEqual(key, PyTuple_GET_ITEM(expected, i))) return false;
  }
  return true;
}

// Constants are kept; what may not be kept alive is known by identity.
PyObject* payload(const Predicate& predicate) {
  return predicate.constant ? predicate.constant.get() : predicate.identity.get();
}

bool isMissing(const Predicate& predicate, PyObject* dict) {
  PyObject* key = payload(predicate);
  PyObject* value = nullptr;
  return key && PyDict_Check(dict) &&
         cpython::dictFind(dict, key, predicate.hash, &value) == cpython::Found::No;
}

cpython::Found membership(const Predicate& predicate, PyObject* set) {
  PyObject* item = payload(predicate);
  if (!item || !PyAnySet_Check(set)) return cpython::Found::Unknown;
  return cpython::setFind(set, item, predicate.hash);
}

bool isUnset(const Predicate& predicate, PyObject* object) {
  PyObject** place = predicate.constant     ? cpython::slotAddress(object, predicate.constant.get())
                     : PyCell_Check(object) ? cpython::cellAddress(object)
                                            : nullptr;
  return place && !*place;
}

bool nameHolds(const Predicate& predicate, PyObject* object) {
  return predicate.type && object == reinterpret_cast<PyObject*>(predicate.type->type()) &&
         !predicate.type->isDead();
}

}  // namespace

Py_ssize_t lengthOf(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object) || isDeque(object)) return Py_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  return PyAnySet_Check(object) ? PySet_GET_SIZE(object) : -1;
}

Mask holding(const Predicate& predicate, PyObject* object) {
  bool holds = false;
  switch (predicate.kind) {
    case PredicateKind::TypeIs:
      if (Py_TYPE(object) != predicate.type->type()) return 0;
      return predicate.mask & predicate.type->passing();
    case PredicateKind::AttrIs:
    case PredicateKind::AttrMissing:
      return nameHolds(predicate, object) ? predicate.mask & predicate.type->passing() : 0;
    case PredicateKind::ConstEq:
      holds = predicate.constant ? cpython::constantsEqual(object, predicate.constant.get())
                                 : predicate.identity.is(object);
      break;
    case PredicateKind::IdentityIs:
      holds = predicate.identity.is(object);
      break;
    case PredicateKind::Missing:
      holds = isMissing(predicate, object);
      break;
    case PredicateKind::DictKeys:
      holds = keysMatch(object, predicate.constant.get());
      break;
    case PredicateKind::Length:
      holds = lengthOf(object) == predicate.number;
      break;
    case PredicateKind::SetEq:
      holds = PyAnySet_Check(object) && cpython::setsEqual(object, predicate.constant.get());
      break;
    case PredicateKind::Contains:
      holds = membership(predicate, object) == cpython::Found::Yes;
      break;
    case PredicateKind::Lacks:
      holds = membership(predicate, object) == cpython::Found::No;
      break;
    case PredicateKind::Unset:
      holds = isUnset(predicate, object);
      break;
    case PredicateKind::TensorMeta:
      holds = aten::metaMatches(*predicate.meta, object);
      break;
    case PredicateKind::FunctionSame:
      holds = predicate.function && PyFunction_Check(object) && predicate.function->holds(object);
      break;
    case PredicateKind::NoDict:
      holds = cpython::hasNoInstanceDict(Py_TYPE(object));
      break;
    case PredicateKind::SameAs:
    case PredicateKind::NotSameAs:
      break;
  }
  return holds ? predicate.mask : 0;
}

bool isAtFault(const Predicate& predicate, PyObject* object, Mask bit) {
  switch (predicate.kind) {
    case PredicateKind::TypeIs:
      return Py_TYPE(object) != predicate.type->type() || !predicate.type->protocolHolds(bit);
    case PredicateKind::AttrIs:
    case PredicateKind::AttrMissing:
      return !nameHolds(predicate, object) || !predicate.type->nameHolds(predicate.name);
    default:
      return !(holding(predicate, object) & bit);
  }
}

std::string expectedText(const Predicate& predicate, Mask bit) {
  PyObject* constant = payload(predicate);
  switch (predicate.kind) {
    case PredicateKind::TypeIs: {
      auto* type = reinterpret_cast<PyObject*>(predicate.type->type());
      if (predicate.type->isDead()) return "an instance of a class that is gone";
      std::string name = ObjectTable::describe(type);
      // When the class itself is the same, what was changed is one of its special methods or its
      // MRO.
      bool changed = !(predicate.type->passing() & bit);
      return changed ? fmt::format("class {} unchanged", name) : fmt::format("class {}", name);
    }
    case PredicateKind::ConstEq:
    case PredicateKind::IdentityIs:
    case PredicateKind::SetEq:
      return ObjectTable::describe(constant);
    case PredicateKind::Contains:
      return fmt::format("it has {}", ObjectTable::describe(constant));
    case PredicateKind::Missing:
    case PredicateKind::Lacks:
      return fmt::format("no {}", ObjectTable::describe(constant));
    case PredicateKind::DictKeys:
      return fmt::format("keys {}", ObjectTable::describe(constant));
    case PredicateKind::Length:
      return fmt::format("length {}", predicate.number);
    case PredicateKind::Unset:
      return constant ? fmt::format("no {}", ObjectTable::describe(constant)) : "empty cell";
    case PredicateKind::TensorMeta:
      return "tensor as recorded";
    case PredicateKind::FunctionSame:
      return "the same code and defaults";
    case PredicateKind::AttrIs:
      return fmt::format("{} = {}", ObjectTable::describe(predicate.type->nameOf(predicate.name)),
                         ObjectTable::describe(predicate.type->valueOf(predicate.name).get()));
    case PredicateKind::AttrMissing:
      return fmt::format("no {}", ObjectTable::describe(predicate.type->nameOf(predicate.name)));
    case PredicateKind::NoDict:
      return "no instance dict";
    case PredicateKind::SameAs:
    case PredicateKind::NotSameAs:
      break;
  }
  return {};
}

std::string foundText(const Predicate& predicate, PyObject* object, Mask bit) {
  if (!object) return "nothing";
  switch (predicate.kind) {
    case PredicateKind::TypeIs: {
      std::string name = ObjectTable::describe(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      bool changed =
          Py_TYPE(object) == predicate.type->type() && !(predicate.type->passing() & bit);
      return changed ? fmt::format("class {} changed", name) : fmt::format("class {}", name);
    }
    case PredicateKind::Contains:
      return fmt::format("no {}", ObjectTable::describe(payload(predicate)));
    case PredicateKind::Missing:
    case PredicateKind::Lacks:
      return fmt::format("it has {}", ObjectTable::describe(payload(predicate)));
    case PredicateKind::DictKeys: {
      if (!PyDict_Check(object)) return ObjectTable::describe(object);
      std::string text;
      cpython::DictKeys keys(object);
      for (PyObject* key = keys.next(); key; key = keys.next())
        text += (text.empty() ? "" : ", ") + ObjectTable::describe(key);
      return fmt::format("keys ({})", text);
    }
    case PredicateKind::Length: {
      Py_ssize_t length = lengthOf(object);
      return length < 0 ? ObjectTable::describe(object) : fmt::format("length {}", length);
    }
    case PredicateKind::TensorMeta:
      return aten::metaDifference(*predicate.meta, object);
    case PredicateKind::FunctionSame:
      return "other code or defaults";
    case PredicateKind::AttrIs:
    case PredicateKind::AttrMissing: {
      PyObject* name = predicate.type->nameOf(predicate.name);
      PyObject* value = PyType_Check(object)
                            ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(object), name)
                            : nullptr;
      if (!value) return fmt::format("no {}", ObjectTable::describe(name));
      return fmt::format("{} = {}", ObjectTable::describe(name), ObjectTable::describe(value));
    }
    default:
      return ObjectTable::describe(object);
  }
}

}  // namespace glowplug::guard
