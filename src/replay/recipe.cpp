// Building Python objects from recipes.
//
// No constructor of the user's runs: an object is allocated by the tp_new of its builtin base, and its
// instance dict, slots and content are put in place by the builtin types' own functions.

#include "replay/recipe.h"

#include <unordered_set>

namespace glowplug::replay {

using common::RecipeId;
using cpython::Ref;
using ir::Recipe;
using ir::RecipeKind;

namespace {

class Builder {
 public:
  Builder(const RecipeContext& context, RecipeMemo& memo) : context_(context), memo_(memo) {}

  Ref build(RecipeId id) {
    if (Ref& known = memo_[id.index()]) return known;
    const Recipe& recipe = context_.trace.recipes[id.index()];
    switch (recipe.kind) {
      case RecipeKind::Const: return constant(recipe);
      case RecipeKind::Source: return Ref::steal(context_.source(recipe.source));
      case RecipeKind::Value: return Ref::steal(context_.value(recipe.value));
      case RecipeKind::List: return list(id, recipe);
      case RecipeKind::Tuple: return keep(id, tuple(recipe, 0));
      case RecipeKind::NamedTuple: return keep(id, namedTuple(recipe));
      case RecipeKind::Dict:
      case RecipeKind::OrderedDict:
      case RecipeKind::DefaultDict: return dict(id, recipe);
      case RecipeKind::Set: return set(id, recipe);
      case RecipeKind::FrozenSet: return keep(id, frozenSet(recipe));
      case RecipeKind::Deque: return keep(id, deque(recipe));
      case RecipeKind::Object: return object(id, recipe);
      case RecipeKind::Function: return function(id, recipe);
      case RecipeKind::Cell: return cell(id, recipe);
      default: return keep(id, composed(recipe));
    }
  }

 private:
  Ref keep(RecipeId id, Ref made) {
    memo_[id.index()] = made;
    return made;
  }

  Ref child(const Recipe& recipe, size_t i) {
    return recipe.children[i].valid() ? build(recipe.children[i]) : Ref();
  }
  bool has(const Recipe& recipe, size_t i) const {
    return i < recipe.children.size() && recipe.children[i].valid();
  }

  Ref constant(const Recipe& recipe) {
    PyObject* object = context_.objects.get(recipe.object);
    if (!object) PyErr_SetString(PyExc_RuntimeError, "glowplug: an object of the trace has died");
    return Ref::borrow(object);
  }

  Ref list(RecipeId id, const Recipe& recipe) {
    Ref made = keep(id, Ref::steal(PyList_New(0)));
    for (size_t i = 0; made && i < recipe.children.size(); i++) {
      Ref item = child(recipe, i);
      if (!item || PyList_Append(made.get(), item.get()) < 0) return Ref();
    }
    return made;
  }

  Ref tuple(const Recipe& recipe, size_t first) {
    Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(recipe.children.size() - first)));
    for (size_t i = first; made && i < recipe.children.size(); i++) {
      Ref item = child(recipe, i);
      if (!item) return Ref();
      PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i - first), item.release());
    }
    return made;
  }

  Ref namedTuple(const Recipe& recipe) {
    Ref type = constant(recipe), items = tuple(recipe, 0);
    if (!type || !items) return Ref();
    Ref args = Ref::steal(PyTuple_Pack(1, items.get()));
    // Struct sequences (torch.return_types) have a constructor in C of their own.
    if (PyObject_HasAttrString(type.get(), "n_sequence_fields"))
      return Ref::steal(PyObject_CallObject(type.get(), args.get()));
    return Ref::steal(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type.get()), args.get(),
                                          nullptr));
  }

  // Items into a dict or a subclass of it, by the builtin's own way of setting.
  bool fill(PyObject* dict, const Recipe& recipe, size_t first) {
    bool ordered = PyODict_Check(dict);
    for (size_t i = first; i + 1 < recipe.children.size(); i += 2) {
      Ref key = child(recipe, i), value = child(recipe, i + 1);
      if (!key || !value) return false;
      int status = ordered ? PyODict_SetItem(dict, key.get(), value.get())
                           : PyDict_SetItem(dict, key.get(), value.get());
      if (status < 0) return false;
    }
    return true;
  }

  Ref dict(RecipeId id, const Recipe& recipe) {
    size_t first = 0;
    Ref made;
    if (recipe.kind == RecipeKind::OrderedDict) {
      made = Ref::steal(PyODict_New());
    } else if (recipe.kind == RecipeKind::DefaultDict) {
      first = 1;
      Ref factory = child(recipe, 0);
      Ref type = collection("defaultdict");
      if (factory && type) made = Ref::steal(PyObject_CallOneArg(type.get(), factory.get()));
    } else {
      made = Ref::steal(PyDict_New());
    }
    keep(id, made);
    return made && fill(made.get(), recipe, first) ? made : Ref();
  }

  static Ref collection(const char* name) {
    Ref module = Ref::steal(PyImport_ImportModule("collections"));
    return module ? Ref::steal(PyObject_GetAttrString(module.get(), name)) : Ref();
  }

  Ref set(RecipeId id, const Recipe& recipe) {
    Ref made = keep(id, Ref::steal(PySet_New(nullptr)));
    for (size_t i = 0; made && i < recipe.children.size(); i++) {
      Ref item = child(recipe, i);
      if (!item || PySet_Add(made.get(), item.get()) < 0) return Ref();
    }
    return made;
  }

  Ref frozenSet(const Recipe& recipe) {
    Ref items = tuple(recipe, 0);
    return items ? Ref::steal(PyFrozenSet_New(items.get())) : Ref();
  }

  Ref deque(const Recipe& recipe) {
    Ref items = tuple(recipe, 0), limit = constant(recipe), type = collection("deque");
    if (!items || !limit || !type) return Ref();
    return Ref::steal(PyObject_CallFunctionObjArgs(type.get(), items.get(), limit.get(), nullptr));
  }

  // children: instance dict, base content, then name and value of each slot.
  Ref object(RecipeId id, const Recipe& recipe) {
    Ref typeObject = constant(recipe);
    if (!typeObject) return Ref();
    auto* type = reinterpret_cast<PyTypeObject*>(typeObject.get());
    PyTypeObject* base = type;
    while (base->tp_flags & Py_TPFLAGS_HEAPTYPE) base = base->tp_base;
    bool byItems = base != &PyBaseObject_Type && base != &PyDict_Type && base != &PyODict_Type;
    Ref content, args = Ref::steal(PyTuple_New(0));
    if (byItems && has(recipe, 1)) {
      content = child(recipe, 1);
      if (!content) return Ref();
      bool exception = PyType_FastSubclass(base, Py_TPFLAGS_BASE_EXC_SUBCLASS);
      if (exception)
        args = content;
      else if (base == &PyTuple_Type)
        args = Ref::steal(PyTuple_Pack(1, content.get()));
    }
    Ref made = args ? Ref::steal(base->tp_new(type, args.get(), nullptr)) : Ref();
    if (!made) return Ref();
    keep(id, made);
    if (base == &PyList_Type && content &&
        PyList_SetSlice(made.get(), 0, PyList_GET_SIZE(made.get()), content.get()) < 0)
      return Ref();
    if (base == &PySet_Type && content && _PySet_Update(made.get(), content.get()) < 0) return Ref();
    if (!byItems && has(recipe, 1) &&
        !fill(made.get(), context_.trace.recipes[recipe.children[1].index()], 0))
      return Ref();
    if (has(recipe, 0)) {
      Ref dict = child(recipe, 0);
      if (!dict || PyObject_GenericSetDict(made.get(), dict.get(), nullptr) < 0) return Ref();
    }
    for (size_t i = 2; i + 1 < recipe.children.size(); i += 2) {
      Ref name = child(recipe, i), value = child(recipe, i + 1);
      if (!name || !value || PyObject_GenericSetAttr(made.get(), name.get(), value.get()) < 0)
        return Ref();
    }
    return made;
  }

  // children: globals, name, qualname, defaults, kwdefaults, annotations, module, doc, dict, cells ...
  Ref function(RecipeId id, const Recipe& recipe) {
    Ref code = constant(recipe), globals = child(recipe, 0), qualname = child(recipe, 2);
    if (!code || !globals || !qualname) return Ref();
    Ref made = Ref::steal(PyFunction_NewWithQualName(code.get(), globals.get(), qualname.get()));
    if (!made) return Ref();
    keep(id, made);
    auto* f = reinterpret_cast<PyFunctionObject*>(made.get());
    auto put = [&](size_t i, PyObject** field) {
      if (!has(recipe, i)) return true;
      Ref value = child(recipe, i);
      if (!value) return false;
      Py_XSETREF(*field, value.release());
      return true;
    };
    if (!put(1, &f->func_name) || !put(3, &f->func_defaults) || !put(4, &f->func_kwdefaults) ||
        !put(5, &f->func_annotations) || !put(6, &f->func_module) || !put(7, &f->func_doc) ||
        !put(8, &f->func_dict))
      return Ref();
    constexpr size_t kCells = 9;
    if (recipe.children.size() > kCells) {
      Ref cells = tuple(recipe, kCells);
      if (!cells || PyFunction_SetClosure(made.get(), cells.get()) < 0) return Ref();
    }
    return made;
  }

  Ref cell(RecipeId id, const Recipe& recipe) {
    Ref made = keep(id, Ref::steal(PyCell_New(nullptr)));
    if (!made || !has(recipe, 0)) return made;
    Ref content = child(recipe, 0);
    if (!content || PyCell_Set(made.get(), content.get()) < 0) return Ref();
    return made;
  }

  Ref composed(const Recipe& recipe) {
    Ref first = child(recipe, 0), second = recipe.children.size() > 1 ? child(recipe, 1) : Ref();
    Ref third = recipe.children.size() > 2 ? child(recipe, 2) : Ref();
    if (PyErr_Occurred()) return Ref();
    switch (recipe.kind) {
      case RecipeKind::Slice:
        return Ref::steal(PySlice_New(first.get(), second.get(), third.get()));
      case RecipeKind::Method:
        return Ref::steal(PyMethod_New(first.get(), second.get()));
      case RecipeKind::Property: {
        Ref name = constant(recipe);
        return name ? Ref::steal(PyObject_GetAttr(first.get(), name.get())) : Ref();
      }
      case RecipeKind::Partial: {
        Ref module = Ref::steal(PyImport_ImportModule("functools"));
        Ref type = module ? Ref::steal(PyObject_GetAttrString(module.get(), "partial")) : Ref();
        Ref head = Ref::steal(PyTuple_Pack(1, first.get()));
        Ref args = head ? Ref::steal(PySequence_Concat(head.get(), second.get())) : Ref();
        return type && args ? Ref::steal(PyObject_Call(type.get(), args.get(), third.get())) : Ref();
      }
      default:
        PyErr_SetString(PyExc_SystemError, "glowplug: a recipe of unknown kind");
        return Ref();
    }
  }

  const RecipeContext& context_;
  RecipeMemo& memo_;
};

}  // namespace

Ref build(const RecipeContext& context, RecipeMemo& memo, RecipeId id) {
  return Builder(context, memo).build(id);
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
