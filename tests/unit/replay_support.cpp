#include "replay_support.h"

#include <algorithm>

const char* glowplug::testing::helpers() {
  return R"(
import collections, functools, gc, types, warnings, weakref, torch
import torch.nn.functional as F
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
log = []
)";
}

namespace glowplug::replay::testing {

namespace {

bool isValue(PyObject* object) {
  return object == Py_None || object == Py_Ellipsis || PyBool_Check(object) ||
         PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) ||
         PyBytes_CheckExact(object) || PyType_Check(object) || PyModule_Check(object) ||
         PyCode_Check(object) || (PyCFunction_Check(object) && !PyCFunction_GET_SELF(object)) ||
         Py_IS_TYPE(object, &PyMethodDescr_Type);
}

PyTypeObject* typeNamed(const char* name) {
  return reinterpret_cast<PyTypeObject*>(PyDict_GetItemString(Python::globals(), name));
}

}  // namespace

void Program::argument(const char* name) {
  if (!recorder_) recorder_ = std::make_unique<aten::OpRecorder>(trace, ops, *this);
  SourceId source(trace.sources.size());
  trace.sources.push_back(
      {ir::StepKind::Arg, SourceId(), common::ObjectId(), static_cast<int64_t>(source.index())});
  Ref object = Python::eval(name);
  kept_.push_back(object);
  if (!aten::isTensor(object.get())) {
    sources_[object.get()] = source;
    return;
  }
  ir::Event event;
  event.kind = ir::EventKind::Input;
  event.results.push_back(recorder_->addInput(object.get(), source));
  if (trace.events.empty() || trace.events.back().results != event.results)
    trace.events.push_back(std::move(event));
}

void Program::run(const std::string& code) {
  if (!recorder_) recorder_ = std::make_unique<aten::OpRecorder>(trace, ops, *this);
  recorder_->start();
  Python::run(code);
  recorder_->syncState();
  recorder_->stop();
}

void Program::nameScalar(const char* name) {
  Ref object = Python::eval(name);
  kept_.push_back(object);
  scalars_[object.get()] = lastScalar_;
}

void Program::fork(const char* scalar) { forkOn(lastScalar_, Python::eval(scalar).get()); }

void Program::forkOn(ValueId value, PyObject* expected) {
  ir::Event event;
  event.kind = ir::EventKind::Fork;
  event.value = value;
  event.expected = object(expected);
  trace.events.push_back(std::move(event));
}

void Program::sizes(const char* tensor) {
  ir::Event event;
  event.kind = ir::EventKind::Sizes;
  event.value = recorder_->find(Python::eval(tensor).get());
  Ref shape = Python::eval(std::string("list(") + tensor + ".shape)");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shape.get()); i++)
    event.sizes.push_back(PyLong_AsLongLong(PyList_GET_ITEM(shape.get(), i)));
  trace.events.push_back(std::move(event));
}

void Program::effect(EffectKind kind, std::vector<std::string> operands, PyObject* keywords) {
  ir::Event event;
  event.kind = ir::EventKind::Effect;
  event.effect = kind;
  for (const std::string& operand : operands) event.recipes.push_back(recipe(operand));
  if (keywords) event.keywords = object(keywords);
  trace.events.push_back(std::move(event));
}

void Program::opaque(std::vector<std::string> operands, bool logOnly, const char* result) {
  ir::Event event;
  event.kind = ir::EventKind::Opaque;
  event.logOnly = logOnly;
  for (const std::string& operand : operands) event.recipes.push_back(recipe(operand));
  if (result) {
    std::string call = operands[0] + "(";
    for (size_t i = 1; i < operands.size(); i++) call += operands[i] + ", ";
    Ref made = Python::eval(call + ")");
    Python::set(result, made.get());
    kept_.push_back(made);
    if (aten::isTensor(made.get())) {
      event.results.push_back(recorder_->addResult(made.get()));
    } else {
      event.results.push_back(ValueId(trace.values.size()));
      trace.values.push_back({ir::ValueKind::Object, SourceId(), common::MetaId(), false});
      scalars_[made.get()] = event.results[0];
    }
  }
  trace.events.push_back(std::move(event));
}

void Program::returns(const std::string& expression) {
  ir::Event event;
  event.kind = ir::EventKind::Return;
  event.recipes.push_back(recipe(expression));
  trace.events.push_back(std::move(event));
}

RecipeId Program::recipe(const std::string& expression) {
  Ref object = Python::eval(expression);
  kept_.push_back(object);
  return recipeOf(object.get());
}

RecipeId Program::add(ir::Recipe recipe) {
  trace.recipes.push_back(std::move(recipe));
  return RecipeId(trace.recipes.size() - 1);
}

common::ObjectId Program::object(PyObject* value) {
  common::ObjectId id = objects.add(value);
  trace.objectTexts.resize(std::max(trace.objectTexts.size(), id.index() + 1));
  return id;
}

RecipeId Program::constant(PyObject* value) {
  return add({RecipeKind::Const, object(value), SourceId(), ValueId(), {}});
}

RecipeId Program::recipeOf(PyObject* object) {
  if (auto scalar = scalars_.find(object); scalar != scalars_.end())
    return add({RecipeKind::Value, common::ObjectId(), SourceId(), scalar->second, {}});
  if (auto source = sources_.find(object); source != sources_.end())
    return add({RecipeKind::Source, common::ObjectId(), source->second, ValueId(), {}});
  if (isValue(object) || object == Python::globals()) return constant(object);
  if (aten::isTensor(object)) {
    ValueId value = recorder_->find(object);
    EXPECT_TRUE(value.valid());
    return add({RecipeKind::Value, common::ObjectId(), SourceId(), value, {}});
  }
  if (auto known = recipes_.find(object); known != recipes_.end()) return known->second;
  kept_.push_back(Ref::borrow(object));
  RecipeId id = add({});
  recipes_[object] = id;
  return fresh(object);
}

RecipeId Program::parts(RecipeId id, std::initializer_list<PyObject*> objects) {
  for (PyObject* part : objects) {
    RecipeId child = part ? recipeOf(part) : RecipeId();
    trace.recipes[id.index()].children.push_back(child);
  }
  return id;
}

// children of the recipe: what list(items) holds.
static std::vector<Ref> listed(const char* expression, PyObject* object) {
  Python::set("_of", object);
  Ref items = Python::eval(expression);
  std::vector<Ref> found;
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); i++)
    found.push_back(Ref::borrow(PyList_GET_ITEM(items.get(), i)));
  Python::set("_of", Py_None);
  return found;
}

RecipeId Program::instance(RecipeId id, PyObject* object) {
  trace.recipes[id.index()].kind = RecipeKind::Object;
  trace.recipes[id.index()].object = this->object(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  Ref content = Ref::steal(nullptr);
  Python::set("_of", object);
  struct Base {
    PyTypeObject* type;
    const char* copy;
  };
  const Base bases[] = {{&PyODict_Type, "OrderedDict(OrderedDict.items(_of))"},
                        {typeNamed("defaultdict"), "defaultdict.copy(_of)"},
                        {&PyDict_Type, "dict(dict.items(_of))"},
                        {&PyList_Type, "list.copy(_of)"},
                        {&PyTuple_Type, "tuple(tuple.__iter__(_of))"},
                        {&PySet_Type, "set(set.__iter__(_of))"},
                        {&PyFrozenSet_Type, "frozenset(frozenset.__iter__(_of))"},
                        {typeNamed("deque"), "deque(deque.__iter__(_of), _of.maxlen)"},
                        {&PyLong_Type, "int.__int__(_of)"},
                        {&PyFloat_Type, "float.__float__(_of)"},
                        {&PyUnicode_Type, "str.__str__(_of)"},
                        {&PyBytes_Type, "bytes.__getitem__(_of, slice(None))"}};
  for (const Base& base : bases) {
    if (!PyObject_TypeCheck(object, base.type)) continue;
    content = Python::eval(base.copy);
    if (base.type == typeNamed("defaultdict")) {
      Python::set("_copy", content.get());
      content = Python::eval("defaultdict(_of.default_factory, dict(dict.items(_of)))");
    }
    break;
  }
  if (PyExceptionInstance_Check(object)) content = Python::eval("_of.args");
  Ref dict = Python::eval("getattr(_of, '__dict__', None)");
  std::vector<Ref> slots = listed(
      "[x for c in type(_of).__mro__ for n, d in vars(c).items()"
      " if type(d) is types.MemberDescriptorType and c.__module__ == 'tested' and hasattr(_of, n)"
      " for x in (n, getattr(_of, n))]",
      object);
  if (content) kept_.push_back(content);
  parts(id, {dict.get() == Py_None ? nullptr : dict.get(), content.get()});
  for (const Ref& part : slots) parts(id, {part.get()});
  return id;
}

RecipeId Program::fresh(PyObject* object) {
  RecipeId id = recipes_.at(object);
  auto is = [&](auto type) { return Py_IS_TYPE(object, type); };
  auto fill = [&](RecipeKind kind, const char* items) {
    trace.recipes[id.index()].kind = kind;
    for (const Ref& item : listed(items, object)) parts(id, {item.get()});
    return id;
  };
  const char* const kPairs = "[x for pair in _of.items() for x in pair]";
  if (is(&PyList_Type)) return fill(RecipeKind::List, "list(_of)");
  if (is(&PyTuple_Type)) return fill(RecipeKind::Tuple, "list(_of)");
  if (is(&PyDict_Type)) return fill(RecipeKind::Dict, kPairs);
  if (is(&PyODict_Type)) return fill(RecipeKind::OrderedDict, kPairs);
  if (is(typeNamed("defaultdict")))
    return fill(RecipeKind::DefaultDict,
                "[_of.default_factory] + [x for pair in _of.items() for x in pair]");
  if (is(&PySet_Type)) return fill(RecipeKind::Set, "list(_of)");
  if (is(&PyFrozenSet_Type)) return fill(RecipeKind::FrozenSet, "list(_of)");
  if (is(typeNamed("deque"))) {
    Python::set("_of", object);
    trace.recipes[id.index()].object = this->object(Python::eval("_of.maxlen").get());
    return fill(RecipeKind::Deque, "list(_of)");
  }
  return composed(id, object);
}

// What is no container.
RecipeId Program::composed(RecipeId id, PyObject* object) {
  auto kind = [&](RecipeKind kind) {
    trace.recipes[id.index()].kind = kind;
    return id;
  };
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return parts(kind(RecipeKind::Slice), {slice->start, slice->stop, slice->step});
  }
  if (PyCell_Check(object)) return parts(kind(RecipeKind::Cell), {PyCell_GET(object)});
  if (PyMethod_Check(object))
    return parts(kind(RecipeKind::Method),
                 {PyMethod_GET_FUNCTION(object), PyMethod_GET_SELF(object)});
  if (PyFunction_Check(object)) {
    auto* f = reinterpret_cast<PyFunctionObject*>(object);
    trace.recipes[id.index()].object = this->object(f->func_code);
    parts(kind(RecipeKind::Function),
          {f->func_globals, f->func_name, f->func_qualname, f->func_defaults, f->func_kwdefaults,
           f->func_annotations, f->func_module, f->func_doc, f->func_dict});
    for (Py_ssize_t i = 0; f->func_closure && i < PyTuple_GET_SIZE(f->func_closure); i++)
      parts(id, {PyTuple_GET_ITEM(f->func_closure, i)});
    return id;
  }
  Python::set("_of", object);
  if (Python::truth("type(_of) is functools.partial")) {
    Ref function = Python::eval("_of.func"), args = Python::eval("_of.args"),
        keywords = Python::eval("_of.keywords");
    return parts(kind(RecipeKind::Partial), {function.get(), args.get(), keywords.get()});
  }
  if (PyTuple_Check(object) && Python::truth("hasattr(_of, '_fields') or "
                                             "hasattr(_of, 'n_fields')")) {
    trace.recipes[id.index()].object = this->object(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    for (const Ref& item : listed("list(_of)", object)) parts(id, {item.get()});
    return kind(RecipeKind::NamedTuple);
  }
  if (PyCFunction_Check(object)) {
    trace.recipes[id.index()].object = this->object(Python::eval("_of.__name__").get());
    return parts(kind(RecipeKind::Property), {PyCFunction_GET_SELF(object)});
  }
  return instance(id, object);
}

Plan& Program::plan() {
  if (!plan_) {
    size_t event = 0;
    EXPECT_EQ(Plan::refusal(trace, &event, &objects), nullptr) << event;
    plan_ = std::make_unique<Plan>(trace, objects, ops);
  }
  return *plan_;
}

std::vector<Ref> Program::fetch(PyObject* arguments) {
  std::vector<Ref> fetched;
  for (SourceId source : plan().wanted())
    fetched.push_back(Ref::borrow(
        PyList_GET_ITEM(arguments, static_cast<Py_ssize_t>(trace.sources[source.index()].index))));
  return fetched;
}

Ref Program::done(Outcome ended) {
  outcome = ended;
  EXPECT_EQ(ended.result != nullptr, ended.kind == Outcome::Kind::Returned);
  EXPECT_EQ(PyErr_Occurred() != nullptr, ended.kind == Outcome::Kind::Raised);
  return Ref::steal(ended.result);
}

namespace {

guard::Call callOf(PyObject* list) {
  guard::Call call;
  call.args = PySequence_Fast_ITEMS(list);
  call.positional = static_cast<size_t>(PyList_GET_SIZE(list));
  return call;
}

}  // namespace

Ref Program::call(const std::string& arguments) {
  Ref list = Python::eval(arguments);
  suspended.reset();
  Outcome ended = plan().run(callOf(list.get()), fetch(list.get()), suspended);
  return done(ended);
}

Ref Program::resume(const std::string& arguments, Program& stopped) {
  Ref list = Python::eval(arguments);
  suspended = std::move(stopped.suspended);
  Outcome ended = plan().resume(callOf(list.get()), fetch(list.get()), suspended);
  return done(ended);
}

}  // namespace glowplug::replay::testing
