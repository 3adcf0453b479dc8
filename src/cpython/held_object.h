#pragma once

#include <Python.h>

#include <vector>

#include "cpython/ref.h"

namespace glowplug::cpython {

// True for objects that may be kept alive by remembering them: plain values, code objects, C
// functions of a module, builtin classes.
bool mayHoldStrongly(PyObject* object);

// Remembers which object something was without keeping a user's object alive.
//
// Plain values are held strongly; the rest weakly. An object that cannot be held weakly is known by
// its address, its class, and by what it wraps (the function of a property or staticmethod, the
// class of a slot descriptor, the items of a tuple); a list, dict or the like by address and class
// alone, so whoever depends on its contents guards them too.
class HeldObject {
 public:
  HeldObject() = default;                  // no object
  static HeldObject of(PyObject* object);  // object may be nullptr
  // Somebody else keeps the object alive for as long as this is used.
  static HeldObject keptElsewhere(PyObject* object);

  // `candidate` (alive, or nullptr) is that object.
  bool is(PyObject* candidate) const;
  // An equal object is remembered in the same way.
  bool sameAs(const HeldObject& other) const;
  // It is known to have died.
  bool isDead() const;
  // Borrowed; nullptr when it died or cannot be reached.
  PyObject* get() const;
  PyObject* address() const { return address_; }

  // Where the address stands as long as the object lives, if it is held weakly.
  PyObject* const* livenessAddress() const;
  // The address alone tells the object, because it is kept alive.
  bool isStrong() const { return kind_ == Kind::Strong; }
  bool isNothing() const { return kind_ == Kind::Nothing; }
  const std::vector<HeldObject>& parts() const { return parts_; }

 private:
  enum class Kind : uint8_t { Nothing, Strong, Weak, Parts };

  Kind kind_ = Kind::Nothing;
  PyObject* address_ = nullptr;
  PyTypeObject* type_ = nullptr;  // compared, never followed
  Ref ref_;                       // the object or a weakref to it
  std::vector<HeldObject> parts_;
};

}  // namespace glowplug::cpython
