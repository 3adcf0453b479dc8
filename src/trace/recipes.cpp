// Recipes: how what outlives the recording is made again at replay.
//
// By structure, with a memo, so that sharing and cycles among fresh objects are kept. An object
// without a known structure makes the recording refuse.

#include <fmt/format.h>

#include <utility>

#include "cpython/object_fields.h"
#include "trace/recorder.h"
#include "trace/well_known.h"

namespace glowplug::trace {

using common::RecipeId;
using cpython::Ref;
using ir::RecipeKind;

RecipeId Recorder::addRecipe(ir::Recipe recipe, PyObject* object) {
  RecipeId id(trace().recipes.size());
  trace().recipes.push_back(std::move(recipe));
  if (object) {
    described_.ids[object] = id;
    if (!provenance_.find(object).valid()) described_.fresh.push_back(Ref::borrow(object));
  }
  return id;
}

RecipeId Recorder::constRecipe(PyObject* object) {
  ir::Recipe recipe;
  recipe.kind = RecipeKind::Const;
  recipe.object = objectId(object);
  return addRecipe(std::move(recipe), nullptr);
}

RecipeId Recorder::tensorRecipe(PyObject* tensor) {
  common::ValueId value = ops_->find(tensor);
  if (!value.valid()) {
    refuse("unknown_tensor", "in what the call leaves behind");
    return {};
  }
  if (!aten::isPlainTensor(tensor)) {
    refuse("tensor_subclass", Py_TYPE(tensor)->tp_name);
    return {};
  }
  ir::Recipe recipe;
  recipe.kind = RecipeKind::Value;
  recipe.value = value;
  return addRecipe(std::move(recipe), nullptr);
}

RecipeId Recorder::listRecipe(RecipeKind kind, PyObject* sequence) {
  ir::Recipe recipe;
  recipe.kind = kind;
  if (kind == RecipeKind::NamedTuple)
    recipe.object = objectId(reinterpret_cast<PyObject*>(Py_TYPE(sequence)));
  if (kind == RecipeKind::Deque) {
    Ref limit = Ref::steal(PyObject_GetAttrString(sequence, "maxlen"));
    recipe.object = objectId(limit.get());
  }
  // Registered before the items, so that a list may contain itself.
  RecipeId id = addRecipe(std::move(recipe), sequence);
  Ref items = Ref::steal(PySequence_List(sequence));
  std::vector<RecipeId> children;
  for (Py_ssize_t i = 0; active_ && i < PyList_GET_SIZE(items.get()); i++)
    children.push_back(this->recipe(PyList_GET_ITEM(items.get(), i)));
  trace().recipes[id.index()].children = std::move(children);
  return id;
}

// memoize: false where the dict is part of an object (its base content) and not an object itself.
RecipeId Recorder::dictRecipe(RecipeKind kind, PyObject* dict, bool memoize) {
  ir::Recipe recipe;
  recipe.kind = kind;
  RecipeId id = addRecipe(std::move(recipe), memoize ? dict : nullptr);
  std::vector<RecipeId> children;
  if (kind == RecipeKind::DefaultDict) {
    Ref factory = Ref::steal(PyObject_GetAttrString(dict, "default_factory"));
    children.push_back(this->recipe(factory.get()));
  }
  PyObject *key, *value;
  if (kind == RecipeKind::OrderedDict) {
    // Its order is not the dict's own after move_to_end.
    static PyObject* iter =
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(wellKnown().orderedDict), "__iter__");
    Ref iterator = Ref::steal(PyObject_CallOneArg(iter, dict));
    while (Ref item = Ref::steal(iterator ? PyIter_Next(iterator.get()) : nullptr)) {
      value = PyDict_GetItemWithError(dict, item.get());
      if (!value) break;
      children.push_back(this->recipe(item.get()));
      children.push_back(this->recipe(value));
    }
    PyErr_Clear();
  } else {
    Py_ssize_t position = 0;
    while (active_ && PyDict_Next(dict, &position, &key, &value)) {
      children.push_back(this->recipe(key));
      children.push_back(this->recipe(value));
    }
  }
  trace().recipes[id.index()].children = std::move(children);
  return id;
}

RecipeId Recorder::functionRecipe(PyObject* function) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  ir::Recipe recipe;
  recipe.kind = RecipeKind::Function;
  recipe.object = objectId(f->func_code);
  RecipeId id = addRecipe(std::move(recipe), function);
  auto part = [&](PyObject* value) { return value ? this->recipe(value) : RecipeId(); };
  PyObject* dict = f->func_dict && PyDict_GET_SIZE(f->func_dict) ? f->func_dict : nullptr;
  std::vector<RecipeId> children{
      part(f->func_globals),  part(f->func_name),       part(f->func_qualname),
      part(f->func_defaults), part(f->func_kwdefaults), part(f->func_annotations),
      part(f->func_module),   part(f->func_doc),        part(dict)};
  if (f->func_closure)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_closure); i++)
      children.push_back(this->recipe(PyTuple_GET_ITEM(f->func_closure, i)));
  trace().recipes[id.index()].children = std::move(children);
  return id;
}

// An instance of a class written in Python, made without running its __init__.
RecipeId Recorder::objectRecipe(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const WellKnown& known = wellKnown();
  PyTypeObject* base = type;
  while (base && (base->tp_flags & Py_TPFLAGS_HEAPTYPE) && base != known.orderedDict)
    base = base->tp_base;
  bool plain = base == &PyBaseObject_Type;
  bool dict = base == &PyDict_Type, ordered = base == known.orderedDict;
  bool list = base == &PyList_Type, tuple = base == &PyTuple_Type, set = base == &PySet_Type;
  bool exception = base && PyType_FastSubclass(base, Py_TPFLAGS_BASE_EXC_SUBCLASS);
  bool heap = type->tp_flags & Py_TPFLAGS_HEAPTYPE;
  if (!(heap || exception) || !(plain || dict || ordered || list || tuple || set || exception)) {
    refuse("no_recipe", fmt::format("an object of type {}", type->tp_name));
    return {};
  }
  if (provenance_.isFresh(reinterpret_cast<PyObject*>(type))) {
    refuse("no_recipe", fmt::format("an object of class {}, made in the call", type->tp_name));
    return {};
  }
  ir::Recipe recipe;
  recipe.kind = RecipeKind::Object;
  recipe.object = objectId(reinterpret_cast<PyObject*>(type));
  RecipeId id = addRecipe(std::move(recipe), object);
  std::vector<RecipeId> children(2);
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (slot && *slot) children[0] = dictRecipe(RecipeKind::Dict, *slot);
  if (dict) children[1] = dictRecipe(RecipeKind::Dict, object, false);
  if (ordered) children[1] = dictRecipe(RecipeKind::OrderedDict, object, false);
  if (list || tuple || set || exception) {
    Ref content;
    if (exception)
      content = Ref::steal(PyObject_GetAttrString(object, "args"));
    else if (tuple)
      content = Ref::steal(PyTuple_GetSlice(object, 0, PyTuple_GET_SIZE(object)));
    else
      content = Ref::steal(set ? PySet_New(object) : PySequence_List(object));
    children[1] = content ? this->recipe(content.get()) : RecipeId();
  }
  for (PyObject* name : cpython::slotNames(type)) {
    if (!active_) break;
    Ref value = Ref::steal(PyObject_GenericGetAttr(object, name));
    if (!value) {
      PyErr_Clear();  // an empty slot stays empty
      continue;
    }
    children.push_back(constRecipe(name));
    children.push_back(this->recipe(value.get()));
  }
  if (exception) describeException(object, children);
  trace().recipes[id.index()].children = std::move(children);
  return id;
}

// What an exception has besides its arguments, as names and values.
void Recorder::describeException(PyObject* object, std::vector<RecipeId>& children) {
  auto* exception = reinterpret_cast<PyBaseExceptionObject*>(object);
  if (exception->traceback && exception->traceback != Py_None)
    return refuse("no_recipe", fmt::format("a {} that was raised: its traceback holds frames",
                                           Py_TYPE(object)->tp_name));
  const auto add = [&](const char* name, PyObject* value) {
    Ref key = Ref::steal(PyUnicode_InternFromString(name));
    children.push_back(constRecipe(key.get()));
    children.push_back(recipe(value));
  };
  if (exception->cause) add("__cause__", exception->cause);
  if (exception->context) add("__context__", exception->context);
  // After __cause__, which sets it.
  if (exception->cause || exception->suppress_context)
    add("__suppress_context__", exception->suppress_context ? Py_True : Py_False);
}

RecipeId Recorder::recipe(PyObject* object) {
  if (!active_) return {};
  ir::Recipe made;
  if (auto scalar = scalars_.find(object); scalar != scalars_.end()) {
    if (refusesGarbage(scalar->second)) return {};
    made.kind = RecipeKind::Value;
    made.value = scalar->second;
    return addRecipe(std::move(made), nullptr);
  }
  if (!addresses_.empty() && PyLong_CheckExact(object) &&
      addresses_.count(PyLong_AsUnsignedLongLongMask(object))) {
    refuse("unguardable", "the address of an object (id, hash) leaves the call");
    return {};
  }
  if (isConstant(object) && !holdsScalar(object)) return constRecipe(object);
  if (aten::isTensor(object)) return tensorRecipe(object);
  if (auto known = described_.ids.find(object); known != described_.ids.end()) return known->second;
  common::SourceId source = provenance_.find(object);
  if (!source.valid() && isPinnable(object)) {
    if (PyFunction_Check(object) && provenance_.isFresh(object)) return functionRecipe(object);
    if (PyType_Check(object) && provenance_.isFresh(object)) {
      refuse("no_recipe", fmt::format("the class {}, made in the call",
                                      reinterpret_cast<PyTypeObject*>(object)->tp_name));
      return {};
    }
    return constRecipe(object);
  }
  if (source.valid()) {
    if (trace().sources[source.index()].step == ir::StepKind::Pinned) return constRecipe(object);
    made.kind = RecipeKind::Source;
    made.source = source;
    return addRecipe(std::move(made), object);
  }
  constexpr int kDeepest = 400;  // building recurses as well
  if (depth_ >= kDeepest) {
    refuse("no_recipe", "objects in objects, too deep to be built again");
    return {};
  }
  depth_++;
  RecipeId id = freshRecipe(object);
  depth_--;
  return id;
}

RecipeId Recorder::freshRecipe(PyObject* object) {
  const WellKnown& known = wellKnown();
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyList_Type) return listRecipe(RecipeKind::List, object);
  if (type == &PyTuple_Type) return listRecipe(RecipeKind::Tuple, object);
  if (type == &PyDict_Type) return dictRecipe(RecipeKind::Dict, object);
  if (type == known.orderedDict) return dictRecipe(RecipeKind::OrderedDict, object);
  if (type == known.defaultDict) return dictRecipe(RecipeKind::DefaultDict, object);
  if (type == &PySet_Type) return listRecipe(RecipeKind::Set, object);
  if (type == &PyFrozenSet_Type) return listRecipe(RecipeKind::FrozenSet, object);
  if (type == known.deque) return listRecipe(RecipeKind::Deque, object);
  ir::Recipe made;
  auto build = [&](RecipeKind kind, std::initializer_list<PyObject*> parts) {
    made.kind = kind;
    RecipeId id = addRecipe(std::move(made), object);
    std::vector<RecipeId> children;
    for (PyObject* part : parts) children.push_back(part ? recipe(part) : RecipeId());
    trace().recipes[id.index()].children = std::move(children);
    return id;
  };
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return build(RecipeKind::Slice, {slice->start, slice->stop, slice->step});
  }
  if (PyMethod_Check(object))
    return build(RecipeKind::Method, {PyMethod_GET_FUNCTION(object), PyMethod_GET_SELF(object)});
  if (PyCell_Check(object)) return build(RecipeKind::Cell, {PyCell_GET(object)});
  if (type == known.partial) {
    Ref function = Ref::steal(PyObject_GetAttrString(object, "func"));
    Ref args = Ref::steal(PyObject_GetAttrString(object, "args"));
    Ref keywords = Ref::steal(PyObject_GetAttrString(object, "keywords"));
    return build(RecipeKind::Partial, {function.get(), args.get(), keywords.get()});
  }
  if (PyTuple_Check(object)) {
    // Named tuples have no state besides their items; torch.return_types are struct sequences.
    bool structSequence = PyObject_HasAttrString(object, "n_sequence_fields");
    PyObject** slot = _PyObject_GetDictPtr(object);
    if (structSequence || !slot || !*slot || !PyDict_GET_SIZE(*slot))
      return listRecipe(RecipeKind::NamedTuple, object);
  }
  if (PyCFunction_Check(object) && PyCFunction_GET_SELF(object)) {
    Ref name = Ref::steal(PyObject_GetAttrString(object, "__name__"));
    if (name) {
      made.object = objectId(name.get());
      return build(RecipeKind::Property, {PyCFunction_GET_SELF(object)});
    }
  }
  return objectRecipe(object);
}

void Recorder::resolveEffects() {
  // Describing an operand may refuse the recording, which lets go of what waits.
  const std::vector<PendingEffect> resolved = std::exchange(pendingEffects_, {});
  for (const PendingEffect& pending : resolved)
    for (size_t i = 0; active_ && i < pending.operands.size(); i++)
      if (pending.operands[i]) {
        RecipeId id = recipe(pending.operands[i].get());
        if (active_) trace().events[pending.event].recipes[i] = id;
      }
  effectOperands_.clear();
}

}  // namespace glowplug::trace
