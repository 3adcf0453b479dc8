// The table of a trace's Python objects, and the version numbers and constants beside it.

#include "cpython/object_table.h"

#include <gtest/gtest.h>

#include "cpython/constant.h"
#include "cpython/held_object.h"
#include "cpython/version_tags.h"

namespace glowplug::cpython {

namespace {

class ObjectTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    globals_ = Ref::steal(PyDict_New());
    PyDict_SetItemString(globals_.get(), "__builtins__", PyEval_GetBuiltins());
    Ref name = Ref::steal(PyUnicode_FromString("tabled"));
    PyDict_SetItemString(globals_.get(), "__name__", name.get());
  }
  void run(const char* code) {
    Ref done = Ref::steal(PyRun_String(code, Py_file_input, globals_.get(), globals_.get()));
    if (!done) PyErr_Print();
    ASSERT_TRUE(done) << code;
  }
  Ref eval(const char* code) {
    Ref value = Ref::steal(PyRun_String(code, Py_eval_input, globals_.get(), globals_.get()));
    if (!value) PyErr_Print();
    EXPECT_TRUE(value) << code;
    return value;
  }
  Ref globals_;
  ObjectTable table_;
};

TEST_F(ObjectTableTest, OneIdAnObject) {
  Ref a = eval("'ab'.join('xyz')"), b = eval("'ab'.join('xyz')");
  EXPECT_EQ(table_.add(a.get()), table_.add(a.get()));
  EXPECT_NE(table_.add(a.get()), table_.add(b.get()));
  EXPECT_EQ(table_.size(), 2u);
}

TEST_F(ObjectTableTest, ValuesAreKept) {
  for (const char* text : {"10**20", "('x', (1, 2.5))", "frozenset({10**20})",
                           "(lambda: 0).__code__", "slice(1, 10**20)", "len"}) {
    common::ObjectId id = table_.add(eval(text).get());
    EXPECT_FALSE(table_.isWeak(id)) << text;
    EXPECT_NE(table_.get(id), nullptr) << text;
  }
}

TEST_F(ObjectTableTest, UserObjectsAreNotKept) {
  run("class A: pass\ndef f(): pass\nimport types\na = A(); m = types.ModuleType('mod')");
  std::vector<common::ObjectId> ids;
  for (const char* text : {"a", "f", "m", "A"}) ids.push_back(table_.add(eval(text).get()));
  for (common::ObjectId id : ids) {
    EXPECT_TRUE(table_.isWeak(id));
    EXPECT_NE(table_.get(id), nullptr);
  }
  run("del a, f, m, A; import gc; gc.collect()");
  for (common::ObjectId id : ids) EXPECT_EQ(table_.get(id), nullptr);
}

// The id of a dead object is not given to another that has its address.
TEST_F(ObjectTableTest, AddressesComeAgain) {
  run("class A: pass");
  for (int i = 0; i < 100; i++) {
    Ref object = eval("A()");
    common::ObjectId id = table_.add(object.get());
    EXPECT_EQ(id.index(), static_cast<size_t>(i));
    EXPECT_EQ(table_.get(id), object.get());
  }
  EXPECT_EQ(table_.get(common::ObjectId(0)), nullptr);
}

TEST_F(ObjectTableTest, Describes) {
  run("class A:\n  def f(self): pass\n  def __repr__(self): raise ValueError\nimport collections");
  auto text = [&](const char* code) { return ObjectTable::describe(eval(code).get()); };
  EXPECT_EQ(text("'a b'"), "'a b'");
  EXPECT_EQ(text("(1, 2.0)"), "(1, 2.0)");
  EXPECT_EQ(text("A"), "tabled.A");
  EXPECT_EQ(text("A.f"), "tabled.A.f");
  EXPECT_EQ(text("A()"), "<tabled.A>");
  EXPECT_EQ(text("(1, A())"), "(1, <tabled.A>)");
  EXPECT_EQ(text("collections"), "collections");
  EXPECT_EQ(text("int"), "int");
  EXPECT_EQ(text("len"), "len");
  EXPECT_EQ(text("A().f"), "method tabled.A.f");
  EXPECT_EQ(ObjectTable::describe(nullptr), "(gone)");
  EXPECT_FALSE(PyErr_Occurred());
}

TEST_F(ObjectTableTest, DictVersionsAreUnique) {
  run("d = {'a': 1}");
  Ref d = eval("d"), copy = eval("dict(d)");
  EXPECT_NE(dictVersion(d.get()), dictVersion(copy.get()));
  for (const char* change :
       {"d['a'] = 2", "d['b'] = 3", "del d['b']", "d.pop('a')", "d.update(x=1)",
        "d.setdefault('y', 2)", "d.popitem()", "d.clear()", "d |= {'q': 1}"}) {
    uint64_t before = dictVersion(d.get());
    run(change);
    EXPECT_NE(dictVersion(d.get()), before) << change;
    EXPECT_EQ(dictOfVersionAddress(dictVersionAddress(d.get())), d.get());
  }
}

TEST_F(ObjectTableTest, InstanceStoresChangeTheVersion) {
  run("class A:\n  def __init__(self): self.x = 0\na = A(); d = a.__dict__\n"
      "def store(v):\n  for i in range(50): a.x = (v, i)");
  Ref d = eval("d");
  for (int i = 0; i < 5; i++) {
    uint64_t before = dictVersion(d.get());
    run("store(1)");  // specialised by the interpreter
    EXPECT_NE(dictVersion(d.get()), before);
  }
}

TEST_F(ObjectTableTest, OrderOfOrderedDicts) {
  run("import collections\no = collections.OrderedDict(a=1, b=2, c=3)");
  Ref o = eval("o");
  ASSERT_TRUE(isOrderedDict(o.get()));
  auto keys = [&] {
    std::string text;
    DictKeys all(o.get());
    while (PyObject* key = all.next()) text += PyUnicode_AsUTF8(key);
    return text;
  };
  EXPECT_EQ(keys(), "abc");
  uint64_t version = dictVersion(o.get()), order = *orderStateAddress(o.get());
  run("o.move_to_end('a')");
  EXPECT_EQ(keys(), "bca");
  EXPECT_EQ(dictVersion(o.get()), version);
  EXPECT_NE(*orderStateAddress(o.get()), order);
}

TEST_F(ObjectTableTest, FindsKeysWithoutPython) {
  run("class K:\n  def __hash__(self): return hash('k')\n  def __eq__(self, o): raise SystemExit\n"
      "class A: pass\na = A(); a.x = 1; a.y = 2");
  auto find = [&](const char* dict, const char* key) {
    Ref d = eval(dict), k = eval(key);
    PyObject* value;
    return dictFind(d.get(), k.get(), PyObject_Hash(k.get()), &value);
  };
  EXPECT_EQ(find("{'k': 1}", "'k'"), Found::Yes);
  EXPECT_EQ(find("{}", "'k'"), Found::No);
  EXPECT_EQ(find("{K(): 1}", "'k'"), Found::Unknown);
  EXPECT_EQ(find("{1: 1}", "True"), Found::Yes);
  EXPECT_EQ(find("{(1, 2): 1}", "(1, 2)"), Found::Yes);
  EXPECT_EQ(find("{'a': 1}", "1"), Found::No);
  EXPECT_EQ(find("a.__dict__", "'y'"), Found::Yes);
  EXPECT_EQ(find("a.__dict__", "'z'"), Found::No);
  run("big = {i: -i for i in range(70000)}\ngone = {str(i): i for i in range(300)}\n"
      "for i in range(250): del gone[str(i)]");
  Ref big = eval("big");
  for (long i = 0; i < 70000; i += 997) {
    Ref key = Ref::steal(PyLong_FromLong(i));
    PyObject* value = nullptr;
    ASSERT_EQ(dictFind(big.get(), key.get(), PyObject_Hash(key.get()), &value), Found::Yes);
    EXPECT_EQ(PyLong_AsLong(value), -i);
  }
  EXPECT_EQ(find("gone", "'7'"), Found::No);
  EXPECT_EQ(find("gone", "'299'"), Found::Yes);
}

TEST_F(ObjectTableTest, HeldObjectsKnowTheirObject) {
  run("class A:\n  __slots__ = ('s',)\n  @property\n  def p(self): pass\n  @staticmethod\n  def "
      "t(): pass\n"
      "def f(): pass");
  for (const char* text :
       {"A", "f", "A.__dict__['p']", "A.__dict__['t']", "A.__dict__['s']", "'abc'"}) {
    HeldObject held = HeldObject::of(eval(text).get());
    EXPECT_TRUE(held.is(eval(text).get())) << text;
    EXPECT_TRUE(held.sameAs(HeldObject::of(eval(text).get()))) << text;
    EXPECT_FALSE(held.is(eval("int").get())) << text;
    EXPECT_FALSE(held.is(nullptr)) << text;
  }
  HeldObject property = HeldObject::of(eval("A.__dict__['p']").get());
  EXPECT_FALSE(property.isDead());
  run("import gc; del A; gc.collect()");
  EXPECT_TRUE(property.isDead());
  EXPECT_TRUE(HeldObject().is(nullptr));
}

}  // namespace

}  // namespace glowplug::cpython
