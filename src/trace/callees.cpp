// The table of C callables, resolved once to the C definitions behind the names.
//
// A C function is recognised by its PyMethodDef (builtin functions, builtin methods and method
// descriptors share it), a slot wrapper by its wrapperbase, a class by its address: whatever name a
// program reaches it by.

#include "trace/callees.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "aten/op_table.h"
#include "cpython/modules.h"
#include "cpython/ref.h"

namespace glowplug::trace {

using cpython::Ref;

namespace {

struct Row {
  const char* module;
  const char* name;
  Callee model;
};

constexpr Row kRows[] = {
#define CALLEE(module, name, kind) {module, name, {CalleeKind::kind, false}},
#define ABSORBS(module, name, kind) {module, name, {CalleeKind::kind, true}},
#define FUNCTION(module, name, kind)
#include "trace/callees.def"
#undef FUNCTION
#undef ABSORBS
#undef CALLEE
};

std::string utf8(PyObject* text) {
  const char* chars = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (!chars) PyErr_Clear();
  return chars ? chars : "";
}

// What identifies the C code behind a callable; nullptr: not a C callable of a known kind.
const void* identity(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type)
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  if (type == &PyWrapperDescr_Type) {
    // The wrapper's base is shared by all classes; the class that defines it tells them apart.
    return callable;
  }
  if (PyType_Check(callable)) return callable;
  return nullptr;
}

class Table {
 public:
  Table() {
    for (const Row& row : kRows)
      if (!isWildcard(row)) add(row);
    for (const Row& row : kRows)
      if (isWildcard(row)) addAll(row);
  }

  Callee find(PyObject* callable) const {
    const void* key = identity(callable);
    auto it = key ? models_.find(key) : models_.end();
    return it == models_.end() ? Callee() : it->second;
  }

 private:
  static bool isWildcard(const Row& row) { return row.name[std::strlen(row.name) - 1] == '*'; }

  static Ref resolve(const char* module, const std::string& path) {
    Ref object = cpython::importModule(module);
    size_t start = 0;
    while (object && start < path.size()) {
      size_t dot = path.find('.', start);
      std::string part = path.substr(start, dot == std::string::npos ? dot : dot - start);
      // A class's own entry, not a bound or inherited one.
      Ref next;
      if (PyType_Check(object.get())) {
        PyObject* own = PyDict_GetItemString(reinterpret_cast<PyTypeObject*>(object.get())->tp_dict,
                                             part.c_str());
        next = Ref::borrow(own);
        if (!next) PyErr_Clear();
      }
      if (!next) next = Ref::steal(PyObject_GetAttrString(object.get(), part.c_str()));
      object = std::move(next);
      start = dot == std::string::npos ? path.size() : dot + 1;
    }
    if (!object) PyErr_Clear();  // another version of torch or Python: no such callable
    return object;
  }

  void add(const void* key, Callee model, PyObject* keep) {
    if (!key || !models_.emplace(key, model).second) return;
    alive_.push_back(Ref::borrow(keep));
  }

  void add(const Row& row) {
    Ref object = resolve(row.module, row.name);
    if (!object) return;
    PyObject* callable = object.get();
    Ref inner;
    if (Py_IS_TYPE(callable, &PyStaticMethod_Type) || Py_IS_TYPE(callable, &PyClassMethod_Type)) {
      inner = Ref::steal(PyObject_GetAttrString(callable, "__func__"));
      callable = inner ? inner.get() : callable;
    }
    if (PyInstanceMethod_Check(callable)) callable = PyInstanceMethod_GET_FUNCTION(callable);
    add(identity(callable), row.model, callable);
  }

  void addAll(const Row& row) {
    // "owner.prefix*"
    std::string path = row.name;
    path.resize(path.size() - 1);
    size_t dot = path.rfind('.');
    std::string prefix = dot == std::string::npos ? path : path.substr(dot + 1);
    path.resize(dot == std::string::npos ? 0 : dot);
    Ref owner = resolve(row.module, path);
    if (!owner) return;
    Ref names = Ref::steal(PyObject_Dir(owner.get()));
    PyObject* dict =
        PyType_Check(owner.get()) ? reinterpret_cast<PyTypeObject*>(owner.get())->tp_dict : nullptr;
    for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names.get()); i++) {
      PyObject* name = PyList_GET_ITEM(names.get(), i);
      if (utf8(name).compare(0, prefix.size(), prefix) != 0) continue;
      // Methods that every object has are object's, whoever is asked for them.
      if (!dict && PyDict_GetItemWithError(PyBaseObject_Type.tp_dict, name)) continue;
      Ref value = dict ? Ref::borrow(PyDict_GetItemWithError(dict, name))
                       : Ref::steal(PyObject_GetAttr(owner.get(), name));
      if (!value) {
        PyErr_Clear();
        continue;
      }
      if (PyType_Check(value.get()) && dict) continue;
      add(identity(value.get()), row.model, value.get());
    }
  }

  std::unordered_map<const void*, Callee> models_;
  std::vector<Ref> alive_;
};

const Table& table() {
  static const Table* table = new Table();
  return *table;
}

std::string attribute(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return utf8(value.get());
}

}  // namespace

PyObject* unboundSlotWrapper(PyObject* wrapper) {
  Ref name = Ref::steal(PyObject_GetAttrString(wrapper, "__name__"));
  Ref owner = Ref::steal(PyObject_GetAttrString(wrapper, "__objclass__"));
  PyObject* found = nullptr;
  if (name && owner && PyType_Check(owner.get()))
    found =
        PyDict_GetItemWithError(reinterpret_cast<PyTypeObject*>(owner.get())->tp_dict, name.get());
  if (!found) PyErr_Clear();
  return found && Py_IS_TYPE(found, &PyWrapperDescr_Type) ? found : nullptr;
}

Callee calleeModel(PyObject* callable) {
  if (PyFunction_Check(callable) || PyMethod_Check(callable)) return {CalleeKind::Python};
  // A slot wrapper bound to an object ([].__len__): its descriptor is found on the type.
  if (Py_IS_TYPE(callable, &_PyMethodWrapper_Type)) {
    PyObject* descriptor = unboundSlotWrapper(callable);
    return descriptor ? table().find(descriptor) : Callee();
  }
  if (PyCFunction_Check(callable)) {
    // C++ functions bound by pybind11 share no PyMethodDef with their class; operators of torch.ops
    // have no name.
    PyObject* self = PyCFunction_GET_SELF(callable);
    const char* name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
    if (self && name && !*name) return {CalleeKind::Tensor};
  }
  return table().find(callable);
}

std::string calleeName(PyObject* callable) {
  PyTypeObject* type = Py_TYPE(callable);
  if (PyType_Check(callable))
    return attribute(callable, "__module__") + "." + attribute(callable, "__qualname__");
  if (PyCFunction_Check(callable) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
      type == &_PyMethodWrapper_Type) {
    std::string module = attribute(callable, "__module__");
    std::string name = attribute(callable, "__qualname__");
    return module.empty() || module == "builtins" ? name : module + "." + name;
  }
  if (PyFunction_Check(callable))
    return attribute(callable, "__module__") + "." + attribute(callable, "__qualname__");
  return std::string("an object of type ") + type->tp_name;
}

namespace {
std::unordered_set<PyTypeObject*>& transparentCallables() {
  static std::unordered_set<PyTypeObject*> types;
  return types;
}
}  // namespace

void addTransparentCallable(PyTypeObject* type) { transparentCallables().insert(type); }

bool isTransparentCallable(PyTypeObject* type) { return transparentCallables().count(type) != 0; }

bool isKnownModule(PyObject* callable) {
  static constexpr std::string_view kModules[] = {"numpy", "datetime", "decimal", "json",   "_json",
                                                  "_io",   "io",       "zlib",    "_pickle"};
  std::string module = attribute(callable, "__module__");
  if (module.empty() && PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable))
    module = Py_TYPE(PyCFunction_GET_SELF(callable))->tp_name;
  if (module.empty() && (Py_IS_TYPE(callable, &PyMethodDescr_Type)))
    module = reinterpret_cast<PyDescrObject*>(callable)->d_type->tp_name;
  if (module.empty()) module = Py_TYPE(callable)->tp_name;
  std::string_view top = std::string_view(module).substr(0, module.find('.'));
  return std::find(std::begin(kModules), std::end(kModules), top) != std::end(kModules);
}

namespace {

struct FunctionRow {
  const char* module;
  const char* name;
  CalleeKind kind;
};

constexpr FunctionRow kFunctions[] = {
#define CALLEE(module, name, kind)
#define ABSORBS(module, name, kind)
#define FUNCTION(module, name, kind) {module, name, CalleeKind::kind},
#include "trace/callees.def"
#undef FUNCTION
#undef ABSORBS
#undef CALLEE
};

using FunctionRows = std::unordered_map<std::string_view, CalleeKind>;

const FunctionRows* functionsOf(std::string_view module) {
  static const auto* rows = [] {
    auto* made = new std::unordered_map<std::string_view, FunctionRows>();
    for (const FunctionRow& row : kFunctions) (*made)[row.module].emplace(row.name, row.kind);
    return made;
  }();
  auto found = rows->find(module);
  return found == rows->end() ? nullptr : &found->second;
}

}  // namespace

void prepareCallees() { table(); }

CalleeKind pythonCalleeModel(PyObject* function) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  if (f->func_dict && PyDict_GetItemString(f->func_dict, "_glowplug_disabled"))
    return CalleeKind::Forbidden;
  // By the code: functools.wraps gives a wrapper the name of what it wraps.
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (f->func_dict &&
      PyUnicode_CompareWithASCIIString(code->co_qualname, "_disable_dynamo.<locals>.inner") == 0)
    return CalleeKind::Unwrapped;
  const char* module = f->func_module && PyUnicode_Check(f->func_module)
                           ? PyUnicode_AsUTF8(f->func_module)
                           : nullptr;
  if (!module) return PyErr_Clear(), CalleeKind::Python;
  std::string_view name = module;
  if (name.substr(0, name.find('.')) == "numpy") return CalleeKind::Known;
  const FunctionRows* rows = functionsOf(name);
  if (!rows) return CalleeKind::Python;
  auto found = rows->find(utf8(f->func_qualname));
  return found == rows->end() ? CalleeKind::Python : found->second;
}

}  // namespace glowplug::trace
