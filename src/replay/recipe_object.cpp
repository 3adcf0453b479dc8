// Building instances of Python classes without running their __new__ and __init__.

#include "cpython/modules.h"
#include "cpython/object_fields.h"
#include "replay/recipe_builder.h"

namespace glowplug::replay {

using common::RecipeId;
using cpython::Ref;
using ir::Recipe;
using ir::RecipeKind;

namespace {

// tp_new of classes that define __new__ in Python. It is not exported; a class with one shows it.
newfunc pythonNew() {
  static newfunc found = [] {
    PyObject* probe = PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){sO}",
                                            "glowplug_probe", "__new__", Py_None);
    newfunc function = probe ? reinterpret_cast<PyTypeObject*>(probe)->tp_new : nullptr;
    if (!probe) PyErr_Clear();
    Py_XDECREF(probe);
    return function;
  }();
  return found;
}

// The class in C under a class made by Python.
PyTypeObject* builtinBase(PyTypeObject* type) {
  while (type->tp_flags & Py_TPFLAGS_HEAPTYPE) type = type->tp_base;
  return type;
}

// Fields in C that nothing but its __init__ fills (OSError, StopIteration...) are none of it.
bool isPlainException(PyTypeObject* base) {
  return PyType_FastSubclass(base, Py_TPFLAGS_BASE_EXC_SUBCLASS) &&
         base->tp_basicsize == static_cast<Py_ssize_t>(sizeof(PyBaseExceptionObject));
}

// Immutable values, which are made out of their content.
bool isValueBase(PyTypeObject* base) {
  return base == &PyLong_Type || base == &PyFloat_Type || base == &PyComplex_Type ||
         base == &PyUnicode_Type || base == &PyBytes_Type || base == &PyFrozenSet_Type;
}

// The kinds of recipe that can stand for the content of the base.
bool canHold(PyTypeObject* base, const Recipe* content) {
  auto is = [&](auto... kinds) { return content && ((content->kind == kinds) || ...); };
  if (base == &PyBaseObject_Type) return !content;
  if (base == &PyDict_Type || base == &PyODict_Type)
    return !content || is(RecipeKind::Dict, RecipeKind::OrderedDict);
  if (base == defaultDictType()) return is(RecipeKind::DefaultDict);
  if (base == cpython::dequeType()) return is(RecipeKind::Deque);
  if (base == &PyTuple_Type || isPlainException(base))
    return !content || is(RecipeKind::Tuple, RecipeKind::Const);
  if (base == &PyList_Type || base == &PySet_Type) return true;
  return isValueBase(base) && content;
}

}  // namespace

bool canBuild(const ir::Trace& trace, const Recipe& recipe, const cpython::ObjectTable& objects) {
  if (recipe.kind != RecipeKind::Object) return true;
  PyObject* object = objects.get(recipe.object);
  if (!object || !PyType_Check(object)) return false;
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  PyTypeObject* base = builtinBase(type);
  bool given = recipe.children.size() > 1 && recipe.children[1].valid();
  if (!canHold(base, given ? &trace.recipes[recipe.children[1].index()] : nullptr)) return false;
  // A class from C between the two (of pybind11, say) has a tp_new of its own, whose work the base
  // cannot do.
  for (PyTypeObject* at = type; at != base; at = at->tp_base)
    if (at->tp_new != base->tp_new && at->tp_new != pythonNew()) return false;
  return true;
}

Ref RecipeBuilder::allocate(RecipeId id, PyTypeObject* type, PyTypeObject* base,
                            const Recipe* content) {
  if (base == &PyTuple_Type && content && content->kind == RecipeKind::Tuple)
    return tupleOf(id, type, *content, 0);
  if (content && (isValueBase(base) || base == &PyTuple_Type)) {
    Ref value = child(recipe(id), 1);
    Ref arguments = value ? Ref::steal(PyTuple_Pack(1, value.get())) : Ref();
    return arguments ? keep(id, Ref::steal(base->tp_new(type, arguments.get(), nullptr))) : Ref();
  }
  static PyObject* empty = PyTuple_New(0);
  Ref made = keep(id, Ref::steal(base->tp_new(type, empty, nullptr)));
  if (!made || !content) return made;
  Ref arguments;
  if (base == defaultDictType()) {
    Ref factory = child(*content, 0);
    if (factory) arguments = Ref::steal(PyTuple_Pack(1, factory.get()));
  } else if (base == cpython::dequeType()) {
    Ref limit = constant(*content);
    if (limit) arguments = Ref::steal(PyTuple_Pack(2, empty, limit.get()));
  } else {
    return made;
  }
  return arguments && base->tp_init(made.get(), arguments.get(), nullptr) == 0 ? made : Ref();
}

bool RecipeBuilder::fillContent(PyObject* made, PyTypeObject* base, const Recipe& object) {
  const Recipe& content = recipe(object.children[1]);
  if (base == &PyTuple_Type || isValueBase(base)) return true;
  if (PyDict_Check(made)) return fillDict(made, content, base == defaultDictType() ? 1 : 0);
  if (base == cpython::dequeType()) return fillDeque(made, content);
  if (base == &PyList_Type && content.kind == RecipeKind::List) return fillList(made, content);
  if (base == &PySet_Type && content.kind == RecipeKind::Set) return fillSet(made, content);
  Ref items = child(object, 1);
  if (!items) return false;
  if (base == &PyList_Type) return PyList_SetSlice(made, 0, 0, items.get()) == 0;
  if (base == &PySet_Type) return _PySet_Update(made, items.get()) == 0;
  Py_XSETREF(reinterpret_cast<PyBaseExceptionObject*>(made)->args, items.release());
  return true;
}

// The instance dict, then slots by their descriptors.
bool RecipeBuilder::fillAttributes(PyObject* made, const Recipe& recipe) {
  if (has(recipe, 0)) {
    Ref dict = child(recipe, 0);
    if (!dict || PyObject_GenericSetDict(made, dict.get(), nullptr) < 0) return false;
  }
  for (size_t i = 2; i + 1 < recipe.children.size(); i += 2) {
    Ref name = child(recipe, i);
    Ref value = name ? child(recipe, i + 1) : Ref();
    if (!value || PyObject_GenericSetAttr(made, name.get(), value.get()) < 0) return false;
  }
  return true;
}

// children: instance dict, content of the builtin base, then name and value of each slot or field.
Ref RecipeBuilder::object(RecipeId id, const Recipe& recipe) {
  Ref class_ = constant(recipe);
  if (!class_) return class_;
  auto* type = reinterpret_cast<PyTypeObject*>(class_.get());
  PyTypeObject* base = builtinBase(type);
  const Recipe* content = has(recipe, 1) ? &this->recipe(recipe.children[1]) : nullptr;
  Ref made = allocate(id, type, base, content);
  if (!made || (content && !fillContent(made.get(), base, recipe))) return Ref();
  return fillAttributes(made.get(), recipe) ? made : Ref();
}

}  // namespace glowplug::replay
