#include "guard/type_state.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cpython/version_tags.h"

namespace glowplug::guard {

using cpython::HeldObject;
using cpython::Ref;

namespace {

// Special names that Python adds to a class by itself, or that no operation looks up by itself; a
// program that reads one has it guarded as any other attribute.
constexpr std::array<std::string_view, 10> kPassive = {
    "__doc__",  "__annotations__", "__module__",    "__qualname__",       "__slotnames__",
    "__dict__", "__weakref__",     "__signature__", "__text_signature__", "__firstlineno__"};

bool isSpecial(PyObject* name) {
  if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_COMPACT_ASCII(name)) return false;
  std::string_view text(reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(name)),
                        static_cast<size_t>(PyUnicode_GET_LENGTH(name)));
  if (text.size() < 5 || !text.starts_with("__") || !text.ends_with("__")) return false;
  for (std::string_view passive : kPassive)
    if (text == passive) return false;
  return true;
}

}  // namespace

TypeState::TypeState(PyTypeObject* type)
    : type_(type),
      held_(HeldObject::of(reinterpret_cast<PyObject*>(type))),
      immutable_(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) {}

void TypeState::add(Mask bit) {
  if (mask_ & bit) return;
  mask_ |= bit;
  version_ = 0;
  if (immutable_) return;
  Protocol now = protocolNow();
  for (Protocol& known : protocols_)
    if (same(known, now)) {
      known.mask |= bit;
      return;
    }
  now.mask = bit;
  protocols_.push_back(std::move(now));
}

size_t TypeState::addName(PyObject* name, PyObject* value, Mask bit) {
  add(bit);
  version_ = 0;
  HeldObject held = HeldObject::of(value);
  for (size_t i = 0; i < names_.size(); i++)
    if (PyUnicode_Compare(names_[i].name.get(), name) == 0 && names_[i].value.sameAs(held)) {
      names_[i].mask |= bit;
      return i;
    }
  names_.push_back({Ref::borrow(name), std::move(held), bit});
  return names_.size() - 1;
}

void TypeState::remove(Mask bits) {
  mask_ &= ~bits;
  version_ = 0;
  // Ids of names must stay, so an unused one only lets go of its objects when all are unused.
  for (Name& name : names_) name.mask &= ~bits;
  for (Protocol& protocol : protocols_) protocol.mask &= ~bits;
  std::erase_if(protocols_, [](const Protocol& protocol) { return protocol.mask == 0; });
  while (!names_.empty() && names_.back().mask == 0) names_.pop_back();
}

Mask TypeState::passing() {
  if (immutable_) return mask_;
  uint32_t now = cpython::typeVersion(type_);
  if (now == 0 || now != version_) recheck();
  return passing_;
}

void TypeState::recheck() {
  passing_ = 0;
  version_ = 0;
  if (isDead()) return;
  uint32_t version = cpython::assignTypeVersion(type_);
  passing_ = mask_;
  for (size_t i = 0; i < names_.size(); i++)
    if (names_[i].mask && !nameHolds(i)) passing_ &= ~names_[i].mask;
  const Protocol now = protocolNow();
  for (const Protocol& protocol : protocols_)
    if (!same(protocol, now)) passing_ &= ~protocol.mask;
  // A look-up above would have assigned a number; a class that gets none is compared each time.
  if (version != 0 && cpython::typeVersion(type_) == version) version_ = version;
}

bool TypeState::nameHolds(size_t id) const {
  const Name& name = names_[id];
  return name.value.is(_PyType_Lookup(type_, name.name.get()));
}

bool TypeState::protocolHolds(Mask bit) const {
  if (immutable_) return true;
  const Protocol now = protocolNow();
  for (const Protocol& protocol : protocols_)
    if (protocol.mask & bit) return same(protocol, now);
  return false;
}

TypeState::Protocol TypeState::protocolNow() const {
  Protocol now;
  PyObject* mro = type_->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    now.mro.push_back(HeldObject::of(reinterpret_cast<PyObject*>(base)));
    if (base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) continue;
    const size_t first = now.methods.size();
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (base->tp_dict && PyDict_Next(base->tp_dict, &position, &name, &value))
      if (isSpecial(name)) now.methods.emplace_back(Ref::borrow(name), HeldObject::of(value));
    // Deleting an attribute and setting it again moves it in the dict.
    std::sort(now.methods.begin() + static_cast<Py_ssize_t>(first), now.methods.end(),
              [](const auto& a, const auto& b) {
                return PyUnicode_Compare(a.first.get(), b.first.get()) < 0;
              });
  }
  return now;
}

bool TypeState::same(const Protocol& a, const Protocol& b) {
  if (a.mro.size() != b.mro.size() || a.methods.size() != b.methods.size()) return false;
  for (size_t i = 0; i < a.mro.size(); i++)
    if (!a.mro[i].sameAs(b.mro[i])) return false;
  for (size_t i = 0; i < a.methods.size(); i++) {
    if (PyUnicode_Compare(a.methods[i].first.get(), b.methods[i].first.get()) != 0) return false;
    if (!a.methods[i].second.sameAs(b.methods[i].second)) return false;
  }
  return true;
}

}  // namespace glowplug::guard
