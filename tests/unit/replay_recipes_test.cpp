// Objects built from recipes are as the originals: class, content, attributes, sharing, cycles.
#include "replay_support.h"

namespace glowplug::replay::testing {
namespace {

const char* const kClasses = R"(
ran = []
class Plain:
    def __init__(self, *a): ran.append('init')
    def __setattr__(self, name, value): ran.append(name); object.__setattr__(self, name, value)
def plain(**kw):
    o = object.__new__(Plain); o.__dict__.update(kw); return o
class New:
    def __new__(cls, *a): ran.append('new'); return object.__new__(cls)
class Slots:
    __slots__ = ('a', 'b', '__weakref__')
class MoreSlots(Slots):
    __slots__ = ('c', '__dict__')
@dataclass(frozen=True)
class Frozen:
    x: int
    y: object
class MyList(list):
    def __init__(self, *a): ran.append('init'); super().__init__(*a)
    def append(self, item): ran.append('append'); super().append(item)
    def extend(self, item): ran.append('extend'); super().extend(item)
    def __iter__(self): ran.append('iter'); return super().__iter__()
class MyDict(dict):
    def __setitem__(self, k, v): ran.append('set'); super().__setitem__(k, v)
    def update(self, *a): ran.append('update')
class MyOrdered(OrderedDict):
    def __setitem__(self, k, v): ran.append('set'); super().__setitem__(k, v)
class MyDefault(defaultdict): pass
class MyTuple(tuple):
    def __new__(cls, *a): ran.append('new'); return tuple.__new__(cls, *a)
class MySet(set):
    def add(self, item): ran.append('add'); super().add(item)
class MyFrozenSet(frozenset): pass
class MyDeque(deque): pass
class MyInt(int):
    def __int__(self): return 99
class MyFloat(float): pass
class MyStr(str):
    def __str__(self): return 'other'
class MyBytes(bytes): pass
class MyError(ValueError):
    def __init__(self, code): self.code = code; super().__init__('text')
Point = namedtuple('Point', 'x y')
class Special(Point):
    def __new__(cls, *a): ran.append('new'); return Point.__new__(cls, *a)
def attach(o, **kw):
    o.__dict__.update(kw); return o
def slotted(cls, **kw):
    o = object.__new__(cls)
    for k, v in kw.items(): object.__setattr__(o, k, v)
    return o
def maker(n):
    count = n
    def inner(a, b=[1], *, c='k') -> int:
        "doc"
        return (a, b, c, count)
    inner.extra = {'n': n}
    return inner
def recursive():
    def inner(n): return 1 if n < 2 else n * inner(n - 1)
    return inner

def same(a, b, seen=None):
    "Same structure all the way down, with the same sharing."
    seen = {} if seen is None else seen
    if id(a) in seen: return seen[id(a)] == id(b)
    if type(a) is not type(b): return False
    plain = (type(None), bool, int, float, str, bytes, types.CodeType)
    if isinstance(a, plain) and not hasattr(a, '__dict__'):
        return a == b
    if isinstance(a, (type, types.ModuleType)) or a is globals(): return a is b
    seen[id(a)] = id(b)
    if isinstance(a, torch.Tensor): return torch.equal(a, b)
    def parts(o):
        out = []
        if isinstance(o, OrderedDict): out += [x for p in OrderedDict.items(o) for x in p]
        elif isinstance(o, dict): out += [x for p in dict.items(o) for x in p]
        elif isinstance(o, (list, tuple, deque)): out += list(type(o).__mro__[-2].__iter__(o))
        elif isinstance(o, (set, frozenset)): out += sorted(o, key=repr)
        elif isinstance(o, (str, bytes)): out += [repr(o), len(o)]
        elif isinstance(o, (int, float)): out += [repr(o)]
        elif isinstance(o, slice): out += [o.start, o.stop, o.step]
        elif isinstance(o, types.CellType): out += [o.cell_contents]
        elif isinstance(o, types.BuiltinFunctionType): out += [o.__name__, o.__self__]
        elif isinstance(o, types.MethodType): out += [o.__func__, o.__self__]
        elif isinstance(o, functools.partial): out += [o.func, o.args, o.keywords]
        elif isinstance(o, types.FunctionType):
            out += [o.__code__, o.__name__, o.__qualname__, o.__defaults__, o.__kwdefaults__,
                    o.__annotations__, o.__module__, o.__doc__, o.__dict__, o.__closure__]
        if isinstance(o, BaseException): out += list(o.args)
        if isinstance(o, defaultdict): out.append(o.default_factory)
        if isinstance(o, deque): out.append(o.maxlen)
        if hasattr(o, '__dict__') and not isinstance(o, types.FunctionType): out.append(vars(o))
        for c in type(o).__mro__:
            for n, d in vars(c).items():
                if type(d) is types.MemberDescriptorType and c.__module__ == 'tested':
                    out += [n, getattr(o, n, None)]
        return out
    pa, pb = parts(a), parts(b)
    return len(pa) == len(pb) and all(same(x, y, seen) for x, y in zip(pa, pb))
)";

struct Case {
  const char* name;
  const char* code;  // sets o
};

const Case kCases[] = {
    {"constants", "o = [None, 1, -2.5, 'text', b'x', True, ..., int, torch]"},
    {"lists", "o = [[], [1, [2, [3]]]]"},
    {"tuples", "o = (), (1,), ([1], (2, [3]))"},
    {"dicts", "o = {'a': [1], 2: {}, (1, 2): 'x'}"},
    {"ordered", "o = OrderedDict([('b', 1), ('a', [2])]); o.move_to_end('b')"},
    {"default_dict", "o = [defaultdict(list, a=[1]), defaultdict(None)]"},
    {"sets", "o = [set(), {1, 'a'}, frozenset(), frozenset({(1, 2), 3})]"},
    {"deques", "o = [deque(), deque([1, [2]]), deque([1, 2], 2)]"},
    {"slices", "o = [slice(1), slice(None, [2], 3)]"},
    {"named_tuples", "o = [Point(1, [2]), Special(3, 4)]"},
    {"tensors", "o = [t, {'t': t}, (u,)]"},
    {"struct_sequence", "o = torch.return_types.max((t, u))"},
    {"shared", "a = [1]; o = [a, a, {'a': a}, (a,), plain(a=a)]"},
    {"list_in_itself", "o = [1]; o.append(o)"},
    {"tuple_in_itself", "o = ([],); o[0].append(o)"},
    {"dict_in_itself", "o = {}; o['o'] = o"},
    {"deque_in_itself", "o = deque(maxlen=3); o.append(o)"},
    {"object_in_itself", "o = plain(); o.__dict__['me'] = o; o.__dict__['all'] = [o]"},
    {"list_subclass_in_itself", "o = MyList(); list.append(o, o)"},
    {"tuple_subclass_in_itself", "o = tuple.__new__(MyTuple, ([],)); o[0].append(o)"},
    {"ordered_subclass_in_itself", "o = MyOrdered(); OrderedDict.__setitem__(o, 'o', o)"},
    {"default_dict_in_itself", "o = MyDefault(list); o['o'] = o"},
    {"frozen_set_in_itself", "x = plain(); o = frozenset({x}); x.__dict__['of'] = o"},
    {"method_of_itself", "o = plain(); o.__dict__['m'] = types.MethodType(ran_of, o); o = o.m"},
    {"method_in_its_object", "o = plain(); o.__dict__['m'] = types.MethodType(ran_of, o)"},
    {"partial_in_itself", "a = []; o = functools.partial(len, a); a.append(o)"},
    {"partials",
     "a = [1]; o = [functools.partial(len, a, 2, k=a), functools.partial(functools.partial(len, "
     "1), 2)]"},
    {"error_in_itself", "o = MyError(3); o.args = (o,)"},
    {"objects", "o = [plain(), plain(x=1, y=[2], z=plain(t=t))]"},
    {"object_with_new", "o = object.__new__(New); o.x = 1"},
    {"slots", "o = [slotted(Slots, a=1), slotted(Slots), slotted(MoreSlots, a=[1], c=t, d=4)]"},
    {"frozen_dataclass", "o = Frozen(1, [2])"},
    {"list_subclass", "o = attach(MyList([1, [2]]), x=3)"},
    {"dict_subclass", "o = attach(MyDict({'a': 1}), x=[3])"},
    {"ordered_subclass", "o = attach(MyOrdered(b=1, a=2), x=3); o.move_to_end('b')"},
    {"default_dict_subclass", "o = attach(MyDefault(list, {'a': [1]}), x=3)"},
    {"tuple_subclass", "o = [attach(MyTuple([1, [2]]), x=3), MyTuple()]"},
    {"set_subclass", "o = [attach(MySet([1, 'b']), x=3), MyFrozenSet([1]), MyFrozenSet()]"},
    {"deque_subclass", "o = [attach(MyDeque([1, [2]], 5), x=3), MyDeque([4])]"},
    {"value_subclasses",
     "o = [attach(MyInt(5), x=[1]), MyFloat(2.5), MyStr('abc'), MyBytes(b'ab')]"},
    {"exceptions", "o = [ValueError(), KeyError('k', [1]), attach(MyError(3), x=t)]"},
    {"cells", "o = [types.CellType([1]), types.CellType(t)]"},
    {"functions", "o = [maker(1), maker([2]), lambda x: x]"},
    {"function_of_itself", "o = recursive()"},
    {"methods", "o = types.MethodType(ran_of, plain(x=1))"},
    {"builtin_methods", "a = [3]; o = (a, a.append, {}.get)"},
};

class Recipes : public ::testing::TestWithParam<Case> {};

TEST_P(Recipes, BuildTheSame) {
  Python::run(kClasses);
  Python::run("def ran_of(self): return self");
  Program program;
  Python::run("t = torch.arange(3.); u = t * 2");
  program.argument("t");
  program.argument("u");
  Python::run(GetParam().code);
  program.returns("o");
  Python::run("ran.clear()");
  Ref made = program.call("[t, u]");
  ASSERT_TRUE(made) << Python::takeError();
  EXPECT_EQ(Python::text("ran"), "[]") << "user code ran";
  Python::set("made", made.get());
  EXPECT_TRUE(Python::truth("same(o, made) and same(made, o)"))
      << Python::text("o") << " " << Python::text("made");
  // Another call builds other objects.
  Ref again = program.call("[t, u]");
  Python::set("again", again.get());
  EXPECT_TRUE(Python::truth("again is not made and same(made, again)"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Recipes, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Recipe, FunctionsWork) {
  Python::run(kClasses);
  Program program;
  Python::run("o = [maker(7), recursive()]");
  program.returns("o");
  Python::set("made", program.call("[]").get());
  EXPECT_EQ(Python::text("made[0](1), made[0](1, c=2), made[1](5)"),
            "((1, [1], 'k', 7), (1, [1], 2, 7), 120)");
  EXPECT_TRUE(Python::truth("made[0].__defaults__[0] is not o[0].__defaults__[0]"));
}

TEST(Recipe, ModelOutputOfTransformers) {
  Python::run(
      "from transformers.modeling_outputs import BaseModelOutput\n"
      "from transformers.cache_utils import DynamicCache\n"
      "t = torch.arange(4.).reshape(1, 1, 2, 2); cache = DynamicCache(); cache.update(t, t, 0)\n");
  Program program;
  program.argument("t");
  program.run("h = t + 1");
  Python::run(
      "o = BaseModelOutput(last_hidden_state=h, hidden_states=(t, h)); c = DynamicCache()\n"
      "class Holder: pass\nholder = Holder(); holder.cache = [h, t]");
  program.returns("(o, holder)");
  Ref made = program.call("[t]");
  ASSERT_TRUE(made) << Python::takeError();
  Python::set("made", made.get());
  EXPECT_TRUE(
      Python::truth("type(made[0]) is BaseModelOutput and list(made[0]) == "
                    "['last_hidden_state', 'hidden_states']"));
  EXPECT_TRUE(
      Python::truth("torch.equal(made[0].last_hidden_state, h) and made[0]['last_hidden_state'] is "
                    "made[0].last_hidden_state and made[0][0] is made[0].last_hidden_state"));
  EXPECT_TRUE(Python::truth(
      "made[0].hidden_states[0] is t and made[0].hidden_states[1] is made[0].last_hidden_state "
      "and made[0].attentions is None and made[1].cache[1] is t"));
  EXPECT_TRUE(Python::truth("vars(made[0]).keys() == vars(o).keys()"));
}

TEST(Recipe, KeysHashAsTheyAre) {
  Python::run(kClasses);
  Program program;
  Python::run("o = {Frozen(1, 2): 'a', MyStr('k'): 'b'}");
  program.returns("o");
  Python::set("made", program.call("[]").get());
  EXPECT_EQ(Python::text("made[Frozen(1, 2)] + made['k']"), "ab");
}

TEST(Recipe, NothingLeaks) {
  Python::run(kClasses);
  Program program;
  Python::run("t = torch.ones(2)");
  program.argument("t");
  Python::run("o = {'a': plain(x=[t], f=maker(1)), 'p': functools.partial(len, [1])}");
  program.returns("o");
  program.call("[t]");
  Python::run("gc.collect(); before = len(gc.get_objects())");
  for (int i = 0; i < 50; i++) ASSERT_TRUE(program.call("[t]"));
  Python::run("gc.collect(); after = len(gc.get_objects())");
  EXPECT_TRUE(Python::truth("abs(after - before) < 20")) << Python::text("after - before");
}

// Under a memory error at any allocation the call fails cleanly.
TEST(Recipe, FailsCleanlyWithoutMemory) {
  Python::run(kClasses);
  Python::run("import _testcapi");
  Program program;
  Python::run(
      "o = [plain(x=[1], d=deque([1])), MyOrdered(a=1), maker(1), (1, [2]), {1: {2}}, "
      "functools.partial(len, [1]), defaultdict(list, a=[1]), MyTuple([1, [2]]), MyError(3)]");
  program.returns("o");
  program.call("[]");
  int failures = 0;
  for (int start = 0; start < 300; start++) {
    Ref list = Python::eval("[]");
    Ref set = Python::eval("_testcapi.set_nomemory");
    Ref remove = Python::eval("_testcapi.remove_mem_hooks");
    Ref at = Ref::steal(PyLong_FromLong(start));
    Ref after = Ref::steal(PyLong_FromLong(start + 1));
    std::unique_ptr<Suspended> suspended;
    Plan& plan = program.plan();
    Ref done = Ref::steal(PyObject_CallFunctionObjArgs(set.get(), at.get(), after.get(), nullptr));
    Outcome outcome = plan.run(guard::Call(), {}, suspended);
    Ref undone = Ref::steal(PyObject_CallNoArgs(remove.get()));
    ASSERT_FALSE(PyErr_Occurred());
    if (outcome.kind == Outcome::Kind::Retry) {
      failures++;
      continue;
    }
    ASSERT_EQ(outcome.kind, Outcome::Kind::Returned);
    Ref result = Ref::steal(outcome.result);
    Python::set("made", result.get());
    ASSERT_TRUE(Python::truth("same(o, made)")) << start;
  }
  EXPECT_GT(failures, 15);
}

TEST(Refusal, ObjectsThatOnlyTheirConstructorMakes) {
  Python::run("e = OSError(2, 'x')\nclass MyStop(StopIteration): pass\ns = MyStop(1)");
  for (const char* expression : {"e", "[s]"}) {
    Program program;
    program.returns(expression);
    size_t event = 9;
    EXPECT_STREQ(Plan::refusal(program.trace, &event, &program.objects), "no_recipe");
    EXPECT_EQ(event, 0u);
  }
}

}  // namespace
}  // namespace glowplug::replay::testing
