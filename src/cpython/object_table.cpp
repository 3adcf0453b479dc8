#include "cpython/object_table.h"

#include "cpython/held_object.h"

namespace glowplug::cpython {

namespace {

std::string textOf(PyObject* unicode) {
  if (!unicode || !PyUnicode_Check(unicode)) return {};
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(unicode, &size);
  if (!text) {
    PyErr_Clear();
    return {};
  }
  return std::string(text, static_cast<size_t>(size));
}

std::string attributeText(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return textOf(value.get());
}

std::string qualifiedName(PyObject* object) {
  std::string module = attributeText(object, "__module__");
  std::string name = attributeText(object, "__qualname__");
  if (name.empty()) name = attributeText(object, "__name__");
  return module.empty() || module == "builtins" ? name : module + "." + name;
}

std::string typeName(PyTypeObject* type) {
  return qualifiedName(reinterpret_cast<PyObject*>(type));
}

std::string reprText(PyObject* object) {
  constexpr size_t kLongest = 200;
  Ref repr = Ref::steal(PyObject_Repr(object));
  if (!repr) PyErr_Clear();
  std::string text = textOf(repr.get());
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) end--;
  return text.substr(0, end) + "...";
}

}  // namespace

common::ObjectId ObjectTable::add(PyObject* object) {
  auto known = ids_.find(object);
  // The address of an object that has died may have become another's.
  if (known != ids_.end() && get(known->second) == object) return known->second;
  Entry entry;
  if (!mayHoldStrongly(object) && PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) {
    entry.strong = Ref::steal(PyWeakref_NewRef(object, nullptr));
    entry.weak = static_cast<bool>(entry.strong);
    if (!entry.weak) PyErr_Clear();
  }
  if (!entry.strong) entry.strong = Ref::borrow(object);
  common::ObjectId id(entries_.size());
  entries_.push_back(std::move(entry));
  ids_[object] = id;
  return id;
}

PyObject* ObjectTable::get(common::ObjectId id) const {
  const Entry& entry = entries_.at(id.index());
  if (!entry.weak) return entry.strong.get();
  PyObject* object = reinterpret_cast<PyWeakReference*>(entry.strong.get())->wr_object;
  return object == Py_None ? nullptr : object;
}

bool ObjectTable::holdsWeakly(PyObject* object) const {
  auto known = ids_.find(object);
  return known != ids_.end() && isWeak(known->second) && get(known->second) == object;
}

bool ObjectTable::isWeak(common::ObjectId id) const { return entries_.at(id.index()).weak; }

std::string ObjectTable::describe(PyObject* object) {
  if (!object) return "(gone)";
  if (PyModule_Check(object)) return attributeText(object, "__name__");
  if (PyType_Check(object) || PyFunction_Check(object) || PyCFunction_Check(object))
    return qualifiedName(object);
  if (mayHoldStrongly(object) && !PyCode_Check(object)) return reprText(object);
  if (PyCode_Check(object))
    return "code " + textOf(reinterpret_cast<PyCodeObject*>(object)->co_qualname);
  if (PyMethod_Check(object)) return "method " + qualifiedName(PyMethod_GET_FUNCTION(object));
  // repr() of anything else is Python code of the user's and may be as long as a tensor.
  if (PyTuple_CheckExact(object)) {
    std::string text = "(";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
      text += (i ? ", " : "") + describe(PyTuple_GET_ITEM(object, i));
    return text + ")";
  }
  return "<" + typeName(Py_TYPE(object)) + ">";
}

int ObjectTable::traverse(visitproc visit, void* arg) const {
  for (const Entry& entry : entries_) Py_VISIT(entry.strong.get());
  return 0;
}

}  // namespace glowplug::cpython
