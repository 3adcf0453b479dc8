#pragma once

#include <Python.h>

#include <string>
#include <string_view>

#include "cpython/ref.h"

namespace glowplug::engine {

inline cpython::Ref toPython(const std::string& text) {
  return cpython::Ref::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}
inline cpython::Ref toPython(std::string_view text) { return toPython(std::string(text)); }
inline cpython::Ref toPython(const char* text) { return toPython(std::string(text)); }
inline cpython::Ref toPython(int64_t number) {
  return cpython::Ref::steal(PyLong_FromLongLong(number));
}
inline cpython::Ref toPython(double number) {
  return cpython::Ref::steal(PyFloat_FromDouble(number));
}
inline cpython::Ref toPython(const cpython::Ref& object) { return object; }

// A dict under construction. After a failure (a Python error is set) it takes no more and gives
// nothing.
class DictBuilder {
 public:
  DictBuilder() : dict_(cpython::Ref::steal(PyDict_New())) {}
  template <class Value>
  void set(const std::string& key, const Value& value) {
    if (!dict_) return;
    cpython::Ref object = toPython(value);
    if (!object || PyDict_SetItemString(dict_.get(), key.c_str(), object.get()) < 0)
      dict_ = cpython::Ref();
  }
  cpython::Ref take() { return std::move(dict_); }

 private:
  cpython::Ref dict_;
};

// The same for a list.
class ListBuilder {
 public:
  ListBuilder() : list_(cpython::Ref::steal(PyList_New(0))) {}
  template <class Value>
  void add(const Value& value) {
    if (!list_) return;
    cpython::Ref object = toPython(value);
    if (!object || PyList_Append(list_.get(), object.get()) < 0) list_ = cpython::Ref();
  }
  cpython::Ref take() { return std::move(list_); }

 private:
  cpython::Ref list_;
};

}  // namespace glowplug::engine
