#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cpython/held_object.h"

namespace glowplug::guard {

using Mask = uint64_t;  // one bit a trace

// What the traces of one entry assume of a class. While the class keeps its version number nothing
// of it has changed; when the number is another, what was used is compared by name, so that an
// attribute that was changed and changed back is as it was.
class TypeState {
 public:
  explicit TypeState(PyTypeObject* type);

  PyTypeObject* type() const { return type_; }
  // Nobody can change this class.
  bool immutable() const { return immutable_; }
  bool isDead() const { return held_.isDead(); }
  PyObject* const* livenessAddress() const { return held_.livenessAddress(); }

  // The trace depends on the class: its MRO and its special methods as they are now.
  void add(Mask bit);
  // A look-up of the name gives that object (nullptr: nothing). Returns the id to ask about it.
  size_t addName(PyObject* name, PyObject* value, Mask bit);
  void remove(Mask bits);
  Mask mask() const { return mask_; }

  // The traces whose assumptions hold for `type`, which is alive and has this state's address.
  Mask passing();
  // The version for which passing() was last found out; 0 when there is none to compare.
  uint32_t version() const { return version_; }

  // For explaining: one name's assumption, and the rest.
  bool nameHolds(size_t id) const;
  PyObject* nameOf(size_t id) const { return names_[id].name.get(); }
  const cpython::HeldObject& valueOf(size_t id) const { return names_[id].value; }
  bool protocolHolds(Mask bit) const;

 private:
  struct Name {
    cpython::Ref name;
    cpython::HeldObject value;
    Mask mask = 0;
  };
  // The MRO and the special methods that user classes in it define.
  struct Protocol {
    std::vector<cpython::HeldObject> mro;
    std::vector<std::pair<cpython::Ref, cpython::HeldObject>> methods;
    Mask mask = 0;
  };
  Protocol protocolNow() const;
  static bool same(const Protocol& a, const Protocol& b);
  void recheck();

  PyTypeObject* type_;
  cpython::HeldObject held_;
  bool immutable_;
  uint32_t version_ = 0;
  Mask passing_ = 0;
  Mask mask_ = 0;
  std::vector<Name> names_;
  std::vector<Protocol> protocols_;
};

}  // namespace glowplug::guard
