// Every step and predicate of the trie: found, not found, found again.

#include "guard_support.h"

namespace glowplug::guard::testing {

TEST_F(GuardTest, ConstantArgument) {
  Paths p;
  p.equal(p.arg(0), py.eval("3"));
  size_t trace = add(p, Arguments({py.eval("3")}));
  expectHolds(trace, Arguments({py.eval("3")}));
  expectFails(trace, Arguments({py.eval("4")}), "L.args[0]", "3", "4");
  expectFails(trace, Arguments({py.eval("3.0")}), "L.args[0]", "3", "3.0");
  expectFails(trace, Arguments({py.eval("True")}));
  expectHolds(trace, Arguments({py.eval("3")}));
}

TEST_F(GuardTest, ConstantsAreComparedExactly) {
  struct Case {
    const char* recorded;
    std::vector<const char*> equal, different;
  };
  const std::vector<Case> cases = {
      {"0.0", {"float('0')"}, {"-0.0", "0", "False"}},
      {"float('nan')", {"float('nan')"}, {"-float('nan')", "1.0"}},
      {"10**30", {"10**29*10"}, {"10**30+1", "1e30"}},
      {"'abc'", {"'ab'+'c'", "str(b'abc','ascii')"}, {"'abd'", "b'abc'", "None"}},
      {"b'abc'", {"bytes([97,98,99])"}, {"'abc'"}},
      {"None", {"None"}, {"False", "0"}},
      {"True", {"1 == 1"}, {"1", "False"}},
      {"(1, (2.0, 'x'))", {"(1, (2.0, 'x'))"}, {"(1, (2, 'x'))", "(1, (2.0,))", "[1, (2.0, 'x')]"}},
      {"frozenset({1, 2})",
       {"frozenset([2, 1])"},
       {"frozenset({1, 2.0})", "frozenset({1})", "{1, 2}"}},
      {"slice(1, None)", {"slice(1, None)"}, {"slice(1, 2)", "slice(True, None)"}},
      {"range(3)", {"range(0, 3)"}, {"range(4)", "range(0, 3, 2)"}},
      {"1+2j", {"complex(1, 2)"}, {"complex(1, -2)", "1.0"}},
  };
  for (const Case& one : cases) {
    GuardTree fresh;
    Paths p;
    p.equal(p.arg(0), py.eval(one.recorded));
    Arguments recorded({py.eval(one.recorded)});
    size_t trace = fresh.add(p.trace, p.objects, p.ops, {}, recorded.call());
    for (const char* text : one.equal)
      EXPECT_TRUE(fresh.holds(trace, Arguments({py.eval(text)}).call(), fetched)) << text;
    for (const char* text : one.different)
      EXPECT_FALSE(fresh.holds(trace, Arguments({py.eval(text)}).call(), fetched))
          << one.recorded << " is not " << text;
  }
}

TEST_F(GuardTest, ShapeOfTheCall) {
  Paths p;
  p.equal(p.kwarg("scale"), py.eval("2"));
  Arguments recorded({py.eval("1")}, {{"scale", py.eval("2")}, {"flag", py.eval("None")}});
  size_t trace = add(p, recorded);
  expectHolds(trace, recorded);
  expectFails(
      trace,
      Arguments({py.eval("1"), py.eval("1")}, {{"scale", py.eval("2")}, {"flag", py.eval("None")}}),
      "L.args");
  expectFails(trace, Arguments({py.eval("1")}, {{"scale", py.eval("2")}}), "L.args");
  expectFails(trace, Arguments({py.eval("1")}));
  expectFails(trace,
              Arguments({py.eval("1")}, {{"flag", py.eval("None")}, {"scale", py.eval("2")}}));
  expectFails(trace,
              Arguments({py.eval("1")}, {{"scale", py.eval("3")}, {"flag", py.eval("None")}}),
              "L.scale", "2", "3");
}

TEST_F(GuardTest, AttributesOfAnObject) {
  py.run("class A: pass\na = A(); a.x = 1; a.b = A(); a.b.y = 'u'");
  Ref a = py.eval("a");
  Paths p;
  SourceId self = p.callee();
  p.type(self, a);
  p.equal(p.attr(self, "x"), py.eval("1"));
  p.type(p.attr(self, "b"), a);
  p.equal(p.attr(p.attr(self, "b"), "y"), py.eval("'u'"));
  p.guard(PredicateKind::Missing, p.dict(self), py.eval("'z'"));
  Arguments call({}, {}, a);
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("a.x = 2");
  expectFails(trace, call, "L.self.x", "1", "2");
  py.run("a.x = 1");
  expectHolds(trace, call);
  py.run("a.other = 5");
  expectHolds(trace, call);
  py.run("a.b.y = 'v'");
  expectFails(trace, call, "L.self.b.y", "'u'", "'v'");
  py.run("a.b.y = 'u'; a.z = 0");
  expectFails(trace, call, "L.self.__dict__", "no 'z'", "it has 'z'");
  py.run("del a.z");
  expectHolds(trace, call);
  py.run("del a.x");
  expectFails(trace, call, "L.self.x", "an object", "nothing");
  py.run("a.x = 1; old = a.b; a.b = A(); a.b.y = 'u'");
  expectHolds(trace, call);
  py.run("a.b.y = 'w'");
  expectFails(trace, call);
  py.run("a.b = old");
  expectHolds(trace, call);
  py.run("a.__dict__ = {'x': 1, 'b': old}");
  expectHolds(trace, call);
  py.run("class B(A): pass\nold.__class__ = B");
  expectFails(trace, call, "L.self.b", "class guarded.A", "class guarded.B");
  py.run("old.__class__ = A");
  expectHolds(trace, call);
}

TEST_F(GuardTest, InlineAttributesOfFreshArguments) {
  py.run("class A:\n  def __init__(self, x): self.x = x");
  Ref a = py.eval("A(1)");
  Paths p;
  p.type(p.arg(0), a);
  p.equal(p.attr(p.arg(0), "x"), py.eval("1"));
  size_t trace = add(p, Arguments({a}));
  for (int i = 0; i < 20; i++) {
    expectHolds(trace, Arguments({py.eval("A(1)")}));
    expectFails(trace, Arguments({py.eval("A(2)")}), "L.args[0].x", "1", "2");
    expectFails(trace, Arguments({py.eval("7")}));
  }
}

TEST_F(GuardTest, ListsAndTuples) {
  py.run("import types\ns = types.SimpleNamespace(items=[1, (2, [3])])");
  Ref s = py.eval("s");
  Paths p;
  SourceId items = p.attr(p.pinned(s), "items");
  p.type(p.pinned(s), s);
  p.type(items, py.eval("[]"));
  p.guard(PredicateKind::Length, items, int64_t{2});
  p.equal(p.step(StepKind::ListItem, items, 0), py.eval("1"));
  SourceId pair = p.step(StepKind::ListItem, items, 1);
  p.guard(PredicateKind::Length, pair, int64_t{2});
  p.equal(p.step(StepKind::TupleItem, pair, 0), py.eval("2"));
  SourceId inner = p.step(StepKind::TupleItem, pair, 1);
  p.equal(p.step(StepKind::ListItem, inner, 0), py.eval("3"));
  Arguments call({});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("s.items.append(4)");
  expectFails(trace, call, "G.<types.SimpleNamespace>.items", "length 2", "length 3");
  py.run("s.items.pop()");
  expectHolds(trace, call);
  py.run("s.items[1][1][0] = 9");
  expectFails(trace, call, "G.<types.SimpleNamespace>.items[1][1][0]", "3", "9");
  py.run("s.items[1][1][0] = 3");
  expectHolds(trace, call);
  py.run("s.items[1] = (2, [3])");
  expectHolds(trace, call);
  py.run("s.items[1] = (2, [3.0])");
  expectFails(trace, call);
  py.run("s.items = [1, (2, [3])]");
  expectHolds(trace, call);
  py.run("s.items[1] = 5");
  expectFails(trace, call);
}

TEST_F(GuardTest, SlotsCellsAndFunctions) {
  py.run(R"(
class S:
  __slots__ = ('a', 'b')
s = S(); s.a = 1
def make():
  n = 1
  def f(x, k=(1, 2), *, w=3): return n
  def put(v): nonlocal n; n = v
  return f, put
f, put = make()
)");
  Ref s = py.eval("s"), f = py.eval("f");
  Paths p;
  p.type(p.arg(0), s);
  p.equal(p.named(StepKind::SlotAttr, p.arg(0), "a"), py.eval("1"));
  p.guard(PredicateKind::Unset, p.arg(0), py.eval("'b'"));
  p.guard(PredicateKind::NoDict, p.arg(0));
  SourceId function = p.pinned(f);
  p.guard(PredicateKind::FunctionSame, function);
  SourceId cell = p.step(StepKind::Closure, function, 0);
  p.equal(p.step(StepKind::CellContents, cell), py.eval("1"));
  p.equal(p.step(StepKind::TupleItem,
                 p.step(StepKind::TupleItem, p.step(StepKind::Defaults, function), 0), 1),
          py.eval("2"));
  p.equal(p.item(p.step(StepKind::Kwdefaults, function), "w"), py.eval("3"));
  p.equal(p.item(p.step(StepKind::Globals, function), "__name__"), py.eval("'guarded'"));
  p.guard(PredicateKind::IdentityIs, p.item(p.step(StepKind::Builtins, function), "len"),
          py.eval("len"));
  Arguments call({s});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("s.a = 2");
  expectFails(trace, call, "L.args[0].a", "1", "2");
  py.run("s.a = 1; s.b = 1");
  expectFails(trace, call, "L.args[0]", "no 'b'");
  py.run("del s.b");
  expectHolds(trace, call);
  py.run("put(5)");
  expectFails(trace, call);
  py.run("put(1)");
  expectHolds(trace, call);
  py.run("kept = f.__defaults__; f.__defaults__ = ((1, 3),)");
  expectFails(trace, call);
  py.run("f.__defaults__ = kept");
  expectHolds(trace, call);
  py.run("f.__kwdefaults__['w'] = 4");
  expectFails(trace, call);
  py.run("f.__kwdefaults__['w'] = 3");
  expectHolds(trace, call);
  py.run("code = f.__code__; f.__code__ = make()[0].__code__.replace(co_name='g')");
  expectFails(trace, call);
  py.run("f.__code__ = code");
  expectHolds(trace, call);
  py.run("import builtins; kept = len\n__builtins__['len'] = 5");
  expectFails(trace, call);
  py.run("__builtins__['len'] = kept");
  expectHolds(trace, call);
}

TEST_F(GuardTest, EmptyCell) {
  py.run(R"(
def make():
  def f(): return n
  def put(v): nonlocal n; n = v
  def drop(): nonlocal n; del n
  if 0: n = 1
  return f, put, drop
f, put, drop = make()
)");
  Paths p;
  p.guard(PredicateKind::Unset, p.step(StepKind::Closure, p.pinned(py.eval("f")), 0));
  Arguments call({});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("put(1)");
  expectFails(trace, call);
  py.run("drop()");
  expectHolds(trace, call);
}

TEST_F(GuardTest, DictsKeysAndOrder) {
  py.run(R"(
import collections
d = {'a': 1, 2: 'x'}
o = collections.OrderedDict(a=1, b=2)
)");
  Ref d = py.eval("d"), o = py.eval("o");
  Paths p;
  SourceId plain = p.arg(0), ordered = p.arg(1);
  p.type(plain, d);
  p.guard(PredicateKind::DictKeys, plain, py.eval("('a', 2)"));
  p.equal(p.step(StepKind::DictItem, plain, py.eval("2")), py.eval("'x'"));
  p.guard(PredicateKind::Length, plain, int64_t{2});
  p.type(ordered, o);
  p.guard(PredicateKind::DictKeys, ordered, py.eval("('a', 'b')"));
  Arguments call({d, o});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("o.move_to_end('a')");
  expectFails(trace, call, "L.args[1]", "keys ('a', 'b')", "keys ('b', 'a')");
  py.run("o.move_to_end('b')");
  expectHolds(trace, call);
  py.run("d.pop('a'); d['a'] = 1");
  expectFails(trace, call, "L.args[0]", "keys ('a', 2)", "keys (2, 'a')");
  py.run("d.pop(2); d[2] = 'x'");
  expectHolds(trace, call);
  py.run("d[2] = 'y'");
  expectFails(trace, call);
  py.run("d[2] = 'x'; o['a'] = 7");
  expectHolds(trace, call);
  py.run("o['c'] = 7");
  expectFails(trace, call);
  // Other dicts with the same contents.
  expectHolds(trace, Arguments({py.eval("{'a': 1, 2: 'x'}"),
                                py.eval("collections.OrderedDict(a=0, b=0)")}));
  expectFails(trace, Arguments({py.eval("{2: 'x', 'a': 1}"),
                                py.eval("collections.OrderedDict(a=0, b=0)")}));
  expectFails(trace, Arguments({py.eval("{'a': 1, 2: 'x'}"),
                                py.eval("collections.OrderedDict(b=0, a=0)")}));
}

TEST_F(GuardTest, OrderOfAnOrderedDictThatStays) {
  py.run("import collections\nclass A: pass\na = A(); a.o = collections.OrderedDict(a=1, b=2)");
  Ref a = py.eval("a");
  Paths p;
  p.type(p.callee(), a);
  p.type(p.attr(p.callee(), "o"), py.eval("a.o"));
  p.guard(PredicateKind::DictKeys, p.attr(p.callee(), "o"), py.eval("('a', 'b')"));
  Arguments call({}, {}, a);
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("a.o.move_to_end('a')");
  expectFails(trace, call, "L.self.o");
  py.run("a.o.move_to_end('b')");
  expectHolds(trace, call);
  py.run("a.o['a'] = 3");
  expectHolds(trace, call);
}

TEST_F(GuardTest, SetsDequesPartialsMethodsProxies) {
  py.run(R"(
import collections, functools, types
class C:
  def m(self): pass
c = C(); c.v = 1
s = {1, 'a'}
q = collections.deque([1, 2])
part = functools.partial(max, 3, key=None)
m = c.m
proxy = types.MappingProxyType({'k': 1})
)");
  Paths p;
  p.guard(PredicateKind::SetEq, p.arg(0), py.eval("frozenset({'a', 1})"));
  p.guard(PredicateKind::Length, p.arg(0), int64_t{2});
  p.equal(p.step(StepKind::DequeItem, p.arg(1), 1), py.eval("2"));
  p.guard(PredicateKind::Length, p.arg(1), int64_t{2});
  SourceId partial = p.arg(2);
  p.guard(PredicateKind::IdentityIs, p.step(StepKind::PartialFunc, partial), py.eval("max"));
  p.equal(p.step(StepKind::TupleItem, p.step(StepKind::PartialArgs, partial), 0), py.eval("3"));
  p.equal(p.item(p.step(StepKind::PartialKwargs, partial), "key"), py.eval("None"));
  SourceId method = p.arg(3);
  p.type(p.step(StepKind::MethodSelf, method), py.eval("c"));
  p.equal(p.attr(p.step(StepKind::MethodSelf, method), "v"), py.eval("1"));
  p.guard(PredicateKind::IdentityIs, p.step(StepKind::MethodFunc, method), py.eval("C.m"));
  p.equal(p.item(p.step(StepKind::ProxyTarget, p.arg(4)), "k"), py.eval("1"));
  auto call = [&] {
    return Arguments({py.eval("s"), py.eval("q"), py.eval("part"), py.eval("m"), py.eval("proxy")});
  };
  size_t trace = add(p, call());
  expectHolds(trace, call());
  const std::vector<std::pair<const char*, const char*>> changes = {
      {"s.add(2)", "s.discard(2)"},
      {"s.discard(1); s.add(1.0)", "s.discard(1.0); s.add(1)"},
      {"q.append(3)", "q.pop()"},
      {"q[1] = 3", "q[1] = 2"},
      {"q.rotate()", "q.rotate()"},
      {"part = functools.partial(min, 3, key=None)", "part = functools.partial(max, 3, key=None)"},
      {"part = functools.partial(max, 4, key=None)", "part = functools.partial(max, 3, key=None)"},
      {"part.keywords['key'] = len", "part.keywords['key'] = None"},
      {"c.v = 2", "c.v = 1"},
      {"m = max", "m = c.m"},
      {"m = types.MethodType(len, c)", "m = c.m"},
      {"proxy = types.MappingProxyType({'k': 2})", "proxy = types.MappingProxyType({'k': 1})"},
      {"proxy = {'k': 1}", "proxy = types.MappingProxyType({'k': 1})"}};
  for (const auto& [change, back] : changes) {
    py.run(change);
    SCOPED_TRACE(change);
    expectFails(trace, call());
    py.run(back);
    expectHolds(trace, call());
  }
}

TEST_F(GuardTest, MembersOfSets) {
  py.run("class A: pass\na, b = A(), A()\ns = {1, 'x', a}");
  Paths p;
  p.guard(PredicateKind::Contains, p.arg(0), py.eval("1"));
  p.guard(PredicateKind::Contains, p.arg(0), py.eval("a"));
  p.guard(PredicateKind::Lacks, p.arg(0), py.eval("b"));
  p.guard(PredicateKind::Lacks, p.arg(0), py.eval("'y'"));
  auto call = [&] { return Arguments({py.eval("s")}); };
  size_t trace = add(p, call());
  expectHolds(trace, call());
  py.run("s.add('y')");
  expectFails(trace, call(), "L.args[0]", "no 'y'", "it has 'y'");
  py.run("s.discard('y'); s.discard(a)");
  expectFails(trace, call(), "L.args[0]", "it has <guarded.A>", "no <guarded.A>");
  py.run("s.add(a); s.add(b)");
  expectFails(trace, call());
  py.run("s.discard(b); s.update(range(10000)); s.difference_update(range(5, 9000))");
  expectHolds(trace, call());
  py.run("s = list(s)");
  expectFails(trace, call());
  py.run("s = frozenset(s); import gc, weakref; gone = weakref.ref(b); del b; gc.collect()");
  EXPECT_TRUE(py.truth("gone() is None"));
  EXPECT_TRUE(tree.isDead(trace));
  expectFails(trace, call());
}

TEST_F(GuardTest, ObjectsAsKeysAreNotKeptAlive) {
  py.run("class A: pass\na, b = A(), A()\nd = {a: 1}");
  auto p = std::make_unique<Paths>();
  p->equal(p->step(StepKind::DictItem, p->arg(0), py.eval("a")), py.eval("1"));
  p->guard(PredicateKind::Missing, p->arg(0), py.eval("b"));
  auto call = [&] { return Arguments({py.eval("d")}); };
  size_t trace = add(*p, call());
  expectHolds(trace, call());
  py.run("d[a] = 2");
  expectFails(trace, call());
  py.run("d[a] = 1; d[b] = 1");
  expectFails(trace, call());
  py.run("del d[b]");
  expectHolds(trace, call());
  py.run(
      "import gc, weakref; refs = [weakref.ref(a), weakref.ref(b)]; del a, b; d.clear()\n"
      "gc.collect()");
  EXPECT_TRUE(py.truth("refs[0]() is None and refs[1]() is None"));
  expectFails(trace, call());
}

TEST_F(GuardTest, ContextVariables) {
  py.run("import contextvars\nv = contextvars.ContextVar('v')\nv.set('on')");
  Paths p;
  p.equal(p.step(StepKind::ContextValue, p.pinned(py.eval("v"))), py.eval("'on'"));
  Arguments call({});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  py.run("token = v.set('off')");
  expectFails(trace, call);
  py.run("v.reset(token)");
  expectHolds(trace, call);
}

TEST_F(GuardTest, SameObjects) {
  Paths p;
  p.guard(PredicateKind::SameAs, p.arg(0), p.arg(1));
  p.guard(PredicateKind::NotSameAs, p.arg(0), p.step(StepKind::ListItem, p.arg(2), 0));
  Ref x = py.eval("[1]"), y = py.eval("[1]");
  auto list = [&](const Ref& item) { return Ref::steal(Py_BuildValue("[O]", item.get())); };
  Arguments call({x, x, list(y)});
  size_t trace = add(p, call);
  expectHolds(trace, call);
  expectFails(trace, Arguments({x, y, list(y)}), "L.args[0]");
  expectFails(trace, Arguments({x, x, list(x)}));
  expectHolds(trace, Arguments({y, y, list(x)}));
}

TEST_F(GuardTest, Attributes) {
  Paths p;
  p.equal(p.named(StepKind::GetAttr, p.arg(0), "real"), py.eval("1.5"));
  size_t trace = add(p, Arguments({py.eval("1.5 + 2j")}));
  expectHolds(trace, Arguments({py.eval("1.5 + 3j")}));
  expectFails(trace, Arguments({py.eval("2.5 + 3j")}), "L.args[0].real", "1.5", "2.5");
  py.run("class P:\n  @property\n  def real(self): raise SystemExit('a guard ran Python code')");
  expectFails(trace, Arguments({py.eval("P()")}));
}

TEST_F(GuardTest, FetchesWhatIsWanted) {
  py.run("class A: pass\na = A(); a.l = [object()]");
  Ref a = py.eval("a");
  Paths p;
  p.type(p.callee(), a);
  SourceId item = p.step(StepKind::ListItem, p.attr(p.callee(), "l"), 0);
  Ref x = py.eval("object()");
  Arguments call({x}, {}, a);
  size_t trace = add(p, call, {item, p.arg(0)});
  for (int round = 0; round < 4; round++) {
    expectHolds(trace, call);
    ASSERT_EQ(fetched.size(), 2u);
    EXPECT_EQ(fetched[0].get(), py.eval("a.l[0]").get());
    EXPECT_EQ(fetched[1].get(), x.get());
    py.run("a.l[0] = object()");
  }
  py.run("a.l.clear()");
  expectFails(trace, call, "L.self.l[0]", "an object", "nothing");
}

}  // namespace glowplug::guard::testing
