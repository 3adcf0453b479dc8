#pragma once

// Traces made by hand, and Python objects to check them against.

#include <Python.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cpython/object_table.h"
#include "cpython/ref.h"
#include "guard/guard_tree.h"

namespace glowplug::guard::testing {

using common::SourceId;
using cpython::Ref;
using ir::PredicateKind;
using ir::StepKind;

// A namespace in which the test runs Python code.
class Namespace {
 public:
  Namespace() : globals_(Ref::steal(PyDict_New())) {
    PyDict_SetItemString(globals_.get(), "__builtins__", PyEval_GetBuiltins());
    set("__name__", Ref::steal(PyUnicode_FromString("guarded")));
  }
  void run(const std::string& code) {
    Ref done =
        Ref::steal(PyRun_String(code.c_str(), Py_file_input, globals_.get(), globals_.get()));
    if (!done) PyErr_Print();
    ASSERT_TRUE(done) << code;
  }
  // New reference.
  Ref eval(const std::string& code) {
    Ref value =
        Ref::steal(PyRun_String(code.c_str(), Py_eval_input, globals_.get(), globals_.get()));
    if (!value) PyErr_Print();
    EXPECT_TRUE(value) << code;
    return value;
  }
  bool truth(const std::string& code) { return PyObject_IsTrue(eval(code).get()) == 1; }
  long number(const std::string& code) { return PyLong_AsLong(eval(code).get()); }
  void set(const char* name, const Ref& value) {
    PyDict_SetItemString(globals_.get(), name, value.get());
  }

 private:
  Ref globals_;
};

// A trace that has sources and guards only.
class Paths {
 public:
  ir::Trace trace;
  cpython::ObjectTable objects;
  aten::OpTable ops;

  common::ObjectId object(PyObject* value) {
    common::ObjectId id = objects.add(value);
    if (trace.objectTexts.size() <= id.index()) trace.objectTexts.resize(id.index() + 1);
    trace.objectTexts[id.index()] = cpython::ObjectTable::describe(value);
    return id;
  }
  SourceId add(ir::Source source) {
    for (size_t i = 0; i < trace.sources.size(); i++) {
      const ir::Source& known = trace.sources[i];
      if (known.step == source.step && known.parent == source.parent &&
          known.object == source.object && known.index == source.index)
        return SourceId(i);
    }
    trace.sources.push_back(source);
    return SourceId(trace.sources.size() - 1);
  }
  SourceId step(StepKind kind, SourceId parent = SourceId(), int64_t index = 0) {
    return add({kind, parent, common::ObjectId(), index});
  }
  SourceId step(StepKind kind, SourceId parent, const Ref& key) {
    return add({kind, parent, object(key.get()), 0});
  }
  SourceId named(StepKind kind, SourceId parent, const char* key) {
    return step(kind, parent, Ref::steal(PyUnicode_InternFromString(key)));
  }
  SourceId callee() { return step(StepKind::Callee); }
  SourceId arg(int64_t index) { return step(StepKind::Arg, SourceId(), index); }
  SourceId kwarg(const char* name) { return named(StepKind::Kwarg, SourceId(), name); }
  SourceId pinned(const Ref& value) { return step(StepKind::Pinned, SourceId(), value); }
  SourceId dict(SourceId parent) { return step(StepKind::InstanceDict, parent); }
  SourceId item(SourceId parent, const char* key) { return named(StepKind::DictItem, parent, key); }
  SourceId attr(SourceId parent, const char* name) { return item(dict(parent), name); }

  void guard(PredicateKind kind, SourceId source) { push(kind, source); }
  void guard(PredicateKind kind, SourceId source, const Ref& payload) {
    push(kind, source).object = object(payload.get());
  }
  void guard(PredicateKind kind, SourceId source, int64_t number) {
    push(kind, source).number = number;
  }
  void guard(PredicateKind kind, SourceId source, SourceId other) {
    push(kind, source).other = other;
  }
  void type(SourceId source, const Ref& value) {
    guard(PredicateKind::TypeIs, source,
          Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(value.get()))));
  }
  void equal(SourceId source, const Ref& value) { guard(PredicateKind::ConstEq, source, value); }
  void tensor(SourceId source, const Ref& value) {
    push(PredicateKind::TensorMeta, source).meta = ops.addMeta(value.get());
  }
  // A look-up on the class finds what it finds now.
  void lookUp(const Ref& type, const char* name) {
    Ref key = Ref::steal(PyUnicode_InternFromString(name));
    PyObject* value = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type.get()), key.get());
    if (!value) return guard(PredicateKind::AttrMissing, pinned(type), key);
    Ref held = PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))
                   ? Ref::steal(PyWeakref_NewRef(value, nullptr))
                   : Ref::borrow(value);
    guard(PredicateKind::AttrIs, pinned(type), Ref::steal(PyTuple_Pack(2, key.get(), held.get())));
  }

 private:
  ir::Guard& push(PredicateKind kind, SourceId source) {
    ir::Guard guard;
    guard.kind = kind;
    guard.source = source;
    guard.site = common::SiteId(0);
    if (trace.sites.empty()) trace.sites.push_back({"model.py", "forward", 7});
    trace.guards.push_back(guard);
    return trace.guards.back();
  }
};

// The arguments of one call, kept alive.
class Arguments {
 public:
  explicit Arguments(std::vector<Ref> positional,
                     std::vector<std::pair<const char*, Ref>> named = {},
                     Ref callee = Ref::borrow(Py_None))
      : callee_(std::move(callee)), objects_(std::move(positional)) {
    call_.positional = objects_.size();
    if (!named.empty()) kwnames_ = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(named.size())));
    for (size_t i = 0; i < named.size(); i++) {
      PyTuple_SET_ITEM(kwnames_.get(), static_cast<Py_ssize_t>(i),
                       PyUnicode_InternFromString(named[i].first));
      objects_.push_back(named[i].second);
    }
    for (const Ref& object : objects_) pointers_.push_back(object.get());
    call_.callee = callee_.get();
    call_.args = pointers_.data();
    call_.kwnames = kwnames_.get();
  }
  const Call& call() const { return call_; }

 private:
  Ref callee_, kwnames_;
  std::vector<Ref> objects_;
  std::vector<PyObject*> pointers_;
  Call call_;
};

// One or more traces of one entry, checked in every way there is: the complete check, the fast one
// that follows it, and the explanation must say the same.
class GuardTest : public ::testing::Test {
 protected:
  Namespace py;
  GuardTree tree;

  size_t add(const Paths& paths, const Arguments& arguments, std::vector<SourceId> wanted = {}) {
    return tree.add(paths.trace, paths.objects, paths.ops, std::move(wanted), arguments.call());
  }
  void expectHolds(size_t number, const Arguments& arguments) {
    for (int round = 0; round < 3; round++) {
      auto failure = tree.explain(number, arguments.call());
      EXPECT_FALSE(failure) << failure->path << ": expected " << failure->expected << ", found "
                            << failure->found;
      EXPECT_TRUE(tree.holds(number, arguments.call(), fetched)) << "round " << round;
    }
  }
  void expectFails(size_t number, const Arguments& arguments, const std::string& path = "",
                   const std::string& expected = "", const std::string& found = "") {
    for (int round = 0; round < 2; round++)
      EXPECT_FALSE(tree.holds(number, arguments.call(), fetched)) << "round " << round;
    auto failure = tree.explain(number, arguments.call());
    ASSERT_TRUE(failure);
    if (!path.empty()) EXPECT_EQ(failure->path, path);
    if (!expected.empty()) EXPECT_EQ(failure->expected, expected);
    if (!found.empty()) EXPECT_EQ(failure->found, found);
  }
  std::vector<Ref> fetched;
};

}  // namespace glowplug::guard::testing
