// Building Python objects from recipes: containers, functions and what is composed of others.

#include "replay/recipe.h"

#include <unordered_set>

#include "cpython/modules.h"
#include "replay/recipe_builder.h"

namespace glowplug::replay {

using common::RecipeId;
using cpython::Ref;
using ir::Recipe;
using ir::RecipeKind;

namespace {

PyTypeObject* partialType() {
  static PyTypeObject* type = cpython::moduleType("functools", "partial");
  return type;
}

// torch.return_types and the like, which are made in C and have more than their items.
bool isStructSequence(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("n_sequence_fields");
  return name && _PyType_Lookup(type, name) != nullptr;
}

}  // namespace

PyTypeObject* defaultDictType() {
  static PyTypeObject* type = cpython::moduleType("collections", "defaultdict");
  return type;
}

Ref RecipeBuilder::build(RecipeId id) {
  const Recipe& recipe = this->recipe(id);
  switch (recipe.kind) {
    case RecipeKind::Const:
      return constant(recipe);
    case RecipeKind::Source:
      return Ref::steal(context_.inputs.source(recipe.source));
    case RecipeKind::Value:
      return Ref::steal(context_.inputs.value(recipe.value));
    default:
      break;
  }
  if (const Ref& known = memo_[id.index()]) return known;
  if (Py_EnterRecursiveCall(" while a result is built")) return Ref();
  Ref made = buildNew(id, recipe);
  Py_LeaveRecursiveCall();
  if (!made) return made;
  // What could not be in the memo before its parts may have been built as a part of itself.
  Ref& place = memo_[id.index()];
  if (!place) place = std::move(made);
  return place;
}

Ref RecipeBuilder::buildNew(RecipeId id, const Recipe& recipe) {
  switch (recipe.kind) {
    case RecipeKind::List:
      return list(id, recipe);
    case RecipeKind::Tuple:
      return tuple(id, recipe);
    case RecipeKind::NamedTuple:
      return namedTuple(id, recipe);
    case RecipeKind::Dict:
    case RecipeKind::OrderedDict:
    case RecipeKind::DefaultDict:
      return dict(id, recipe);
    case RecipeKind::Set:
      return set(id, recipe);
    case RecipeKind::Deque:
      return deque(id, recipe);
    case RecipeKind::Object:
      return object(id, recipe);
    case RecipeKind::Function:
      return function(id, recipe);
    case RecipeKind::Cell:
      return cell(id, recipe);
    case RecipeKind::Partial:
      return partial(id, recipe);
    default:
      return composed(recipe);
  }
}

Ref RecipeBuilder::constant(const Recipe& recipe) const {
  PyObject* object = context_.objects.get(recipe.object);
  if (!object) PyErr_SetString(PyExc_SystemError, "glowplug: an object of the trace has died");
  return Ref::borrow(object);
}

bool RecipeBuilder::fillList(PyObject* list, const Recipe& recipe) {
  for (size_t i = 0; i < recipe.children.size(); i++) {
    Ref item = child(recipe, i);
    if (!item || PyList_Append(list, item.get()) < 0) return false;
  }
  return true;
}

Ref RecipeBuilder::list(RecipeId id, const Recipe& recipe) {
  Ref made = keep(id, Ref::steal(PyList_New(0)));
  return made && fillList(made.get(), recipe) ? made : Ref();
}

bool RecipeBuilder::fillTuple(PyObject* tuple, const Recipe& recipe, size_t first) {
  for (size_t i = first; i < recipe.children.size(); i++) {
    Ref item = child(recipe, i);
    if (!item) return false;
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i - first), item.release());
  }
  return true;
}

Ref RecipeBuilder::tupleOf(RecipeId id, PyTypeObject* type, const Recipe& recipe, size_t first) {
  auto count = static_cast<Py_ssize_t>(recipe.children.size() - first);
  // The empty tuple is one object, and tuple's tp_alloc is not for tuples themselves.
  Ref made = Ref::steal(type == &PyTuple_Type ? PyTuple_New(count) : type->tp_alloc(type, count));
  if (!made) return made;
  if (id.valid()) keep(id, made);
  return fillTuple(made.get(), recipe, first) ? made : Ref();
}

Ref RecipeBuilder::tuple(RecipeId id, const Recipe& recipe) {
  return tupleOf(id, &PyTuple_Type, recipe, 0);
}

Ref RecipeBuilder::namedTuple(RecipeId id, const Recipe& recipe) {
  Ref class_ = constant(recipe);
  if (!class_) return class_;
  auto* type = reinterpret_cast<PyTypeObject*>(class_.get());
  if (!isStructSequence(type)) return tupleOf(id, type, recipe, 0);
  Ref items = tupleOf(RecipeId(), &PyTuple_Type, recipe, 0);
  return items ? Ref::steal(PyObject_CallOneArg(class_.get(), items.get())) : Ref();
}

// Items into a dict or a subclass of it, by the builtin's own way of setting.
bool RecipeBuilder::fillDict(PyObject* dict, const Recipe& recipe, size_t first) {
  auto set = PyODict_Check(dict) ? PyODict_SetItem : PyDict_SetItem;
  for (size_t i = first; i + 1 < recipe.children.size(); i += 2) {
    Ref key = child(recipe, i);
    Ref value = key ? child(recipe, i + 1) : Ref();
    if (!value || set(dict, key.get(), value.get()) < 0) return false;
  }
  return true;
}

Ref RecipeBuilder::dict(RecipeId id, const Recipe& recipe) {
  size_t first = 0;
  Ref made;
  if (recipe.kind == RecipeKind::OrderedDict) {
    made = Ref::steal(PyODict_New());
  } else if (recipe.kind == RecipeKind::DefaultDict) {
    first = 1;
    PyTypeObject* type = defaultDictType();
    Ref factory = type ? child(recipe, 0) : Ref();
    if (factory) {
      made = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), factory.get()));
    }
  } else {
    made = Ref::steal(PyDict_New());
  }
  if (!made) return made;
  keep(id, made);
  return fillDict(made.get(), recipe, first) ? made : Ref();
}

// The caller is the only one to know a frozenset, as PySet_Add asks for.
bool RecipeBuilder::fillSet(PyObject* set, const Recipe& recipe) {
  for (size_t i = 0; i < recipe.children.size(); i++) {
    Ref item = child(recipe, i);
    if (!item || PySet_Add(set, item.get()) < 0) return false;
  }
  return true;
}

Ref RecipeBuilder::set(RecipeId id, const Recipe& recipe) {
  Ref made = keep(id, Ref::steal(PySet_New(nullptr)));
  return made && fillSet(made.get(), recipe) ? made : Ref();
}

bool RecipeBuilder::fillDeque(PyObject* deque, const Recipe& recipe) {
  static PyObject* append =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(cpython::dequeType()), "append");
  for (size_t i = 0; i < recipe.children.size(); i++) {
    Ref item = child(recipe, i);
    if (!item) return false;
    PyObject* arguments[] = {deque, item.get()};
    if (!Ref::steal(PyObject_Vectorcall(append, arguments, 2, nullptr))) return false;
  }
  return true;
}

Ref RecipeBuilder::deque(RecipeId id, const Recipe& recipe) {
  Ref limit = constant(recipe);
  Ref empty = Ref::steal(PyTuple_New(0));
  auto* type = reinterpret_cast<PyObject*>(cpython::dequeType());
  if (!limit || !empty || !type) return Ref();
  PyObject* arguments[] = {empty.get(), limit.get()};
  Ref made = keep(id, Ref::steal(PyObject_Vectorcall(type, arguments, 2, nullptr)));
  return made && fillDeque(made.get(), recipe) ? made : Ref();
}

// children: globals, name, qualname, defaults, kwdefaults, annotations, module, doc, dict, cells...
Ref RecipeBuilder::function(RecipeId id, const Recipe& recipe) {
  Ref code = constant(recipe);
  Ref globals = code ? child(recipe, 0) : Ref();
  Ref qualname = globals ? child(recipe, 2) : Ref();
  if (!qualname) return Ref();
  Ref made = Ref::steal(PyFunction_NewWithQualName(code.get(), globals.get(), qualname.get()));
  if (!made) return made;
  keep(id, made);
  auto* f = reinterpret_cast<PyFunctionObject*>(made.get());
  PyObject** fields[] = {nullptr,           &f->func_name,       nullptr,
                         &f->func_defaults, &f->func_kwdefaults, &f->func_annotations,
                         &f->func_module,   &f->func_doc,        &f->func_dict};
  constexpr size_t kCells = std::size(fields);
  for (size_t i = 0; i < kCells; i++) {
    if (!fields[i]) continue;
    if (!has(recipe, i)) {
      // The name and the doc of the code are not the function's when it has lost them.
      if (fields[i] != &f->func_name) Py_CLEAR(*fields[i]);
      continue;
    }
    Ref value = child(recipe, i);
    if (!value) return Ref();
    Py_XSETREF(*fields[i], value.release());
  }
  if (recipe.children.size() > kCells) {
    Ref cells = tupleOf(RecipeId(), &PyTuple_Type, recipe, kCells);
    if (!cells || PyFunction_SetClosure(made.get(), cells.get()) < 0) return Ref();
  }
  return made;
}

Ref RecipeBuilder::cell(RecipeId id, const Recipe& recipe) {
  Ref made = keep(id, Ref::steal(PyCell_New(nullptr)));
  if (!made || !has(recipe, 0)) return made;
  Ref content = child(recipe, 0);
  return content && PyCell_Set(made.get(), content.get()) == 0 ? made : Ref();
}

// By __setstate__, which keeps args and keywords as the very objects and does not merge a partial
// that stands inside.
Ref RecipeBuilder::partial(RecipeId id, const Recipe& recipe) {
  Ref function = child(recipe, 0);
  auto* type = reinterpret_cast<PyObject*>(partialType());
  if (!function || !type) return Ref();
  Ref made = keep(id, Ref::steal(PyObject_CallOneArg(type, function.get())));
  if (!made) return made;
  Ref args = child(recipe, 1);
  Ref keywords = args ? child(recipe, 2) : Ref();
  if (!keywords) return Ref();
  Ref state = Ref::steal(PyTuple_Pack(4, function.get(), args.get(), keywords.get(), Py_None));
  static PyObject* setState = PyObject_GetAttrString(type, "__setstate__");
  if (!state || !setState) return Ref();
  Ref done = Ref::steal(PyObject_CallFunctionObjArgs(setState, made.get(), state.get(), nullptr));
  return done ? made : Ref();
}

Ref RecipeBuilder::composed(const Recipe& recipe) {
  if (recipe.kind == RecipeKind::FrozenSet) {
    Ref made = Ref::steal(PyFrozenSet_New(nullptr));
    return made && fillSet(made.get(), recipe) ? made : Ref();
  }
  constexpr size_t kMost = 3;
  Ref parts[kMost];
  for (size_t i = 0; i < std::min(recipe.children.size(), kMost); i++) {
    parts[i] = child(recipe, i);
    if (!parts[i]) return Ref();
  }
  switch (recipe.kind) {
    case RecipeKind::Slice:
      return Ref::steal(PySlice_New(parts[0].get(), parts[1].get(), parts[2].get()));
    case RecipeKind::Method:
      return Ref::steal(PyMethod_New(parts[0].get(), parts[1].get()));
    case RecipeKind::Property: {
      Ref name = constant(recipe);
      return name ? Ref::steal(PyObject_GetAttr(parts[0].get(), name.get())) : Ref();
    }
    default:
      PyErr_SetString(PyExc_SystemError, "glowplug: a recipe of unknown kind");
      return Ref();
  }
}

Ref build(const RecipeContext& context, RecipeMemo& memo, RecipeId id) {
  return RecipeBuilder(context, memo).build(id);
}

void visitRecipes(const ir::Trace& trace, const std::vector<RecipeId>& roots,
                  const std::function<void(const Recipe&)>& visitor) {
  std::unordered_set<uint32_t> seen;
  std::vector<RecipeId> open(roots);
  while (!open.empty()) {
    RecipeId id = open.back();
    open.pop_back();
    if (!id.valid() || !seen.insert(id.value).second) continue;
    const Recipe& recipe = trace.recipes[id.index()];
    visitor(recipe);
    open.insert(open.end(), recipe.children.begin(), recipe.children.end());
  }
}

}  // namespace glowplug::replay
