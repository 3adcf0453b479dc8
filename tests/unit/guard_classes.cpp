// What is assumed of classes: changes, changes taken back, death.

#include "guard_support.h"

namespace glowplug::guard::testing {

// A module-like object whose class, base class and metaclass protocol are guarded.
class ClassGuardTest : public GuardTest {
 protected:
  void SetUp() override {
    py.run(R"(
class Base:
  scale = 1
  def __call__(self): return self.forward()
class M(Base):
  def forward(self): return 1
  @property
  def size(self): return 2
  @staticmethod
  def helper(): pass
m = M()
)");
    type_ = py.eval("M");
    object_ = py.eval("m");
    paths_.type(paths_.arg(0), object_);
    for (const char* name : {"forward", "scale", "size", "helper", "missing", "__call__"})
      paths_.lookUp(type_, name);
    trace_ = add(paths_, call());
    expectHolds(trace_, call());
  }
  Arguments call() { return Arguments({object_}); }
  void expectNoticed(const char* change, const char* back, const char* path = "",
                     const char* expected = "") {
    SCOPED_TRACE(change);
    py.run(change);
    expectFails(trace_, call(), path, expected);
    py.run(back);
    expectHolds(trace_, call());
  }

  Ref type_, object_;
  Paths paths_;
  size_t trace_ = 0;
};

TEST_F(ClassGuardTest, AttributesByName) {
  expectNoticed("old = M.forward; M.forward = lambda self: 2", "M.forward = old", "G.guarded.M",
                "'forward' = guarded.M.forward");
  expectNoticed("Base.scale = 2", "Base.scale = 1", "G.guarded.M", "'scale' = 1");
  expectNoticed("M.scale = 2", "del M.scale");
  expectNoticed("M.missing = 1", "del M.missing", "G.guarded.M", "no 'missing'");
  expectNoticed("Base.missing = 1", "del Base.missing");
  expectNoticed("old = M.__dict__['size']; M.size = property(lambda self: 3)", "M.size = old");
  expectNoticed("old = M.__dict__['helper']; M.helper = staticmethod(len)", "M.helper = old");
}

TEST_F(ClassGuardTest, UnusedAttributesDoNotMatter) {
  for (int i = 0; i < 50; i++) {
    py.run("M.counter = getattr(M, 'counter', 0) + 1; Base.other = 3; M.__doc__ = 'text'");
    expectHolds(trace_, call());
  }
  py.run("M.__annotations__; import copyreg; copyreg._slotnames(M)");
  expectHolds(trace_, call());
}

TEST_F(ClassGuardTest, SpecialMethodsAreWatchedWithoutAsking) {
  expectNoticed("M.__bool__ = lambda self: False", "del M.__bool__", "L.args[0]",
                "class guarded.M unchanged");
  expectNoticed("Base.__getattr__ = lambda self, n: 1", "del Base.__getattr__");
  expectNoticed("old = Base.__call__; Base.__call__ = lambda self: 0", "Base.__call__ = old");
}

TEST_F(ClassGuardTest, BasesOfTheClass) {
  expectNoticed("class Other(Base): pass\nM.__bases__ = (Other,)", "M.__bases__ = (Base,)");
}

TEST_F(ClassGuardTest, ObjectsOfOtherClasses) {
  py.run("class N(M): pass");
  expectFails(trace_, Arguments({py.eval("N()")}), "L.args[0]", "class guarded.M",
              "class guarded.N");
  expectHolds(trace_, Arguments({py.eval("M()")}));
}

TEST_F(ClassGuardTest, ManyVersionsOfOneClass) {
  // A second trace that was made while the class was another.
  py.run("old = M.forward; new = lambda self: 2; M.forward = new");
  Paths other;
  other.type(other.arg(0), object_);
  other.lookUp(type_, "forward");
  size_t second = add(other, call());
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(tree.match(call().call(), fetched), second);
    expectFails(trace_, call());
    py.run("M.forward = old");
    EXPECT_EQ(tree.match(call().call(), fetched), trace_);
    expectFails(second, call());
    py.run("M.forward = new");
  }
}

TEST_F(ClassGuardTest, DeathOfTheClass) {
  EXPECT_FALSE(tree.isDead(trace_));
  py.run("import gc, weakref\ngone = weakref.ref(M); del M, m");
  type_ = object_ = Ref();
  py.run("gc.collect()");
  EXPECT_TRUE(py.truth("gone() is None"));
  EXPECT_TRUE(tree.isDead(trace_));
  expectFails(trace_, Arguments({py.eval("3")}));
}

TEST_F(ClassGuardTest, ValuesReadFromClasses) {
  py.run("class Config:\n  widths = [4, 8]");
  Paths p;
  Ref config = py.eval("Config");
  p.lookUp(config, "widths");
  SourceId widths = p.named(StepKind::TypeAttr, p.pinned(config), "widths");
  p.type(widths, py.eval("[]"));
  p.guard(PredicateKind::Length, widths, int64_t{2});
  p.equal(p.step(StepKind::ListItem, widths, 1), py.eval("8"));
  Arguments none({});
  size_t trace = add(p, none);
  expectHolds(trace, none);
  py.run("Config.widths[1] = 9");
  expectFails(trace, none, "G.guarded.Config.widths[1]", "8", "9");
  py.run("Config.widths[1] = 8; Config.unused = 1");
  expectHolds(trace, none);
  py.run("old = Config.widths; Config.widths = [4, 9]");
  expectFails(trace, none);
  py.run("Config.widths = old");
  expectHolds(trace, none);
}

TEST_F(GuardTest, AddressesOfClassAttributesAreNotTrusted) {
  py.run(R"(
one, two = [1], [2]
class C: pass
def put(items):
  for _ in range(8):  # freed and made again at the same address
    C.pair = None; C.pair = (items,)
put(one)
)");
  Paths p;
  Ref type = py.eval("C");
  p.lookUp(type, "other");
  SourceId pair = p.named(StepKind::TypeAttr, p.pinned(type), "pair");
  p.type(pair, py.eval("()"));
  p.equal(p.step(StepKind::ListItem, p.step(StepKind::TupleItem, pair, 0), 0), py.eval("1"));
  Arguments none({});
  for (int i = 0; i < 5; i++) {
    GuardTree fresh;
    py.run("put(one)");
    size_t trace = fresh.add(p.trace, p.objects, p.ops, {}, none.call());
    EXPECT_TRUE(fresh.holds(trace, none.call(), fetched));
    EXPECT_TRUE(fresh.holds(trace, none.call(), fetched));
    py.run("put(two)");
    EXPECT_FALSE(fresh.holds(trace, none.call(), fetched));
    py.run("put(one)");
    EXPECT_TRUE(fresh.holds(trace, none.call(), fetched));
  }
}

TEST_F(GuardTest, VersionsOfDictsAndClassesSurviveAClearedTypeCache) {
  py.run("import sys\nclass A:\n  x = 1\na = A()");
  Ref a = py.eval("a"), type = py.eval("A");
  Paths p;
  p.type(p.arg(0), a);
  p.lookUp(type, "x");
  Arguments call({a});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("sys._clear_type_cache(); A.x = 2; a.x");
  expectFails(trace, call);
  py.run("A.x = 1");
  expectHolds(trace, call);
}

}  // namespace glowplug::guard::testing
