"""``glowplug.compile`` as its users meet it: what it takes, what comes back, what it refuses."""

import copy
import functools
import inspect
import pickle
import re
from collections import OrderedDict

import pytest
import torch
from torch import nn

import glowplug
from glowplug._compile import original


def module_level(x, scale=2):
    """Scale a tensor."""
    return x * scale


@glowplug.compile
def decorated(x):
    """Add one."""
    return x + 1


class Net(nn.Module):
    """Linear and batch norm, with a method besides forward."""

    def __init__(self, width=4):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x, flip=False):
        y = self.norm(self.lin(x))
        return -y if flip else y

    def twice(self, x):
        return self(self(x))


class Adder:
    """A callable object with state."""

    def __init__(self, amount):
        self.amount = amount

    def __call__(self, x):
        return x + self.amount

    def shifted(self, x):
        return x - self.amount


# Functions and other callables


def test_a_function_is_called_with_all_kinds_of_arguments(same):
    compiled = glowplug.compile(module_level)
    x = torch.randn(3)
    for _ in range(3):
        same(x * 2, compiled(x))
        same(x * 5, compiled(x, 5))
        same(x * 7, compiled(x, scale=7))


@pytest.mark.parametrize(
    "decorate",
    [glowplug.compile, glowplug.compile(), glowplug.compile(dynamic=False, backend="eager")],
    ids=["bare", "empty parentheses", "with arguments"],
)
def test_decorator_forms(decorate, same):
    @decorate
    def f(x):
        return x.sin() + 1

    x = torch.randn(3)
    same(x.sin() + 1, f(x))
    same(x.sin() + 1, f(x))


def test_a_compiled_function_looks_like_its_original():
    compiled = glowplug.compile(module_level)
    assert compiled.__name__ == "module_level"
    assert compiled.__qualname__ == "module_level"
    assert compiled.__module__ == module_level.__module__
    assert compiled.__doc__ == "Scale a tensor."
    assert compiled.__wrapped__ is module_level
    assert inspect.signature(compiled) == inspect.signature(module_level)
    assert callable(compiled)


def test_a_decorated_method_is_bound(same):
    class Holder:
        factor = 3

        @glowplug.compile
        def scale(self, x):
            return x * self.factor

    holder, x = Holder(), torch.randn(2)
    same(x * 3, holder.scale(x))
    holder.factor = 4
    same(x * 4, holder.scale(x))
    same(x * 4, Holder.scale(holder, x))


def test_a_decorated_forward(same):
    class Decorated(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        @glowplug.compile
        def forward(self, x):
            return self.lin(x).relu()

    first, second, x = Decorated(), Decorated(), torch.randn(2, 3)
    with torch.no_grad():
        for module in (first, second, first):
            same(module.lin(x).relu(), module(x))


def test_bound_methods_and_callable_objects(same):
    adder, x = Adder(2), torch.randn(3)
    compiled, bound = glowplug.compile(adder), glowplug.compile(adder.shifted)
    part = glowplug.compile(functools.partial(module_level, scale=3))
    for _ in range(2):
        same(x + 2, compiled(x))
        same(x - 2, bound(x))
        same(x * 3, part(x))
    adder.amount = 5
    same(x + 5, compiled(x))
    same(x - 5, bound(x))
    assert bound.__name__ == "shifted"


def test_functions_are_copied_and_pickled_by_name():
    assert copy.deepcopy(decorated) is decorated
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_a_compiled_object_is_pickled_with_its_state(same):
    compiled = glowplug.compile(Adder(3), backend="eager")
    again = pickle.loads(pickle.dumps(compiled))
    same(torch.ones(2) + 3, again(torch.ones(2)))


def test_compiling_twice_compiles_the_original(same):
    once = glowplug.compile(module_level)
    twice = glowplug.compile(once, backend="eager")
    assert twice.__wrapped__ is module_level
    net = Net()
    assert original(glowplug.compile(glowplug.compile(net))) is net


def test_disable_gives_the_model_itself():
    net = Net()
    assert glowplug.compile(net, disable=True) is net
    assert glowplug.compile(disable=True)(module_level) is module_level


# Modules


def test_a_compiled_module_is_its_module_in_all_but_the_call():
    net = Net()
    compiled = glowplug.compile(net)
    assert isinstance(compiled, Net)
    assert type(compiled).__name__ == "Net"
    assert type(compiled).__qualname__ == Net.__qualname__
    assert type(compiled).__module__ == Net.__module__
    assert repr(compiled) == repr(net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert compiled.__dict__ is net.__dict__
    assert compiled.lin is net.lin
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in net.named_parameters()]


def test_a_compiled_module_gives_what_its_module_gives(same):
    net = Net().eval()
    compiled = glowplug.compile(net)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(2):
            same(net(x), compiled(x))
            same(net(x, flip=True), compiled(x, flip=True))
            same(net.twice(x), compiled.twice(x))


def test_modes_hooks_and_state_are_shared(same):
    net = Net()
    compiled = glowplug.compile(net)
    assert compiled.eval() is compiled
    assert not net.training
    seen = []
    handle = compiled.register_forward_hook(lambda m, i, o: seen.append(1))
    x = torch.randn(2, 4)
    with torch.no_grad():
        net(x), compiled(x), compiled(x)
    assert len(seen) == 3
    handle.remove()
    compiled.load_state_dict({k: torch.ones_like(v) for k, v in net.state_dict().items()})
    assert torch.equal(net.lin.weight, torch.ones(4, 4))
    compiled.double()
    assert net.lin.weight.dtype is torch.float64
    with torch.no_grad():
        same(net(x.double()), compiled(x.double()))


def test_a_compiled_module_inside_a_module(same):
    inner = Net().eval()
    outer = nn.Sequential(OrderedDict(a=glowplug.compile(inner), b=nn.ReLU()))
    assert list(outer.state_dict()) == [f"a.{name}" for name in inner.state_dict()]
    x = torch.randn(2, 4)
    with torch.no_grad():
        same(inner(x).relu(), outer(x))
        whole = glowplug.compile(outer)
        same(inner(x).relu(), whole(x))
        same(inner(x).relu(), whole(x))


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["deepcopy", "pickle"],
)
def test_a_duplicate_is_compiled_and_independent(duplicate, same):
    net = Net().eval()
    compiled = glowplug.compile(net, backend="eager")
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected = compiled(x)
        twin = duplicate(compiled)
        assert isinstance(twin, Net)
        assert type(twin) is not Net
        same(expected, twin(x))
        twin.lin.weight.zero_()
        same(expected, compiled(x))
        same(net.norm(net.lin.bias.expand(2, 4)), twin(x))


def test_a_shallow_copy_shares_parameters():
    compiled = glowplug.compile(Net())
    twin = copy.copy(compiled)
    assert twin.lin is compiled.lin
    assert twin.__dict__ is not compiled.__dict__


def test_the_users_init_subclass_does_not_hear_of_it(same):
    registry = []

    class Base(nn.Module):
        def __init_subclass__(cls, *, tag, **kwargs):
            super().__init_subclass__(**kwargs)
            registry.append(tag)

    class Tagged(Base, tag="mine"):
        def forward(self, x):
            return x + 1

    compiled = glowplug.compile(Tagged())
    same(torch.ones(1) + 1, compiled(torch.ones(1)))
    assert registry == ["mine"]


def test_an_abstract_base_class_is_not_confused():
    import abc

    class Base(nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Real(Base):
        def forward(self, x):
            return x * 2

    class Other(Base):
        def forward(self, x):
            return x * 3

    compiled = glowplug.compile(Real())
    assert isinstance(compiled, Real)
    assert isinstance(compiled, Base)
    assert not isinstance(Other(), type(compiled))
    assert isinstance(Other(), Base)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_slots_cannot_be_shared():
    class Slotted(nn.Module):
        __slots__ = ("kept",)

        def forward(self, x):
            return x

    with pytest.raises(TypeError, match="kept in __slots__"):
        glowplug.compile(Slotted())


# What is refused


@pytest.mark.parametrize("thing", [3, "model", [nn.Linear(1, 1)], torch.ones(1), nn.Linear])
def test_what_cannot_be_compiled_is_a_type_error(thing):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, a function, a bound method"):
        glowplug.compile(thing)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"backend": "nope"}, ValueError, ("nope", "native", "eager", "inductor")),
        ({"backend": "glowplug"}, ValueError, ("glowplug", "native")),
        ({"backend": 3}, TypeError, ("backend", "int")),
        ({"mode": "fastest"}, ValueError, ("fastest", "default", "max-autotune")),
        ({"options": {"fast_mathz": 1}}, ValueError, ("fast_mathz", "known")),
        ({"options": 3}, TypeError, ("options", "int")),
        ({"fullgraph": 1}, TypeError, ("fullgraph", "int")),
        ({"dynamic": "yes"}, TypeError, ("dynamic", "str")),
        (
            {"backend": "inductor", "options": {"fast_mathz": 1}},
            ValueError,
            ("fast_mathz", "known"),
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_arguments_are_named_with_what_is_known(arguments, error, words):
    with pytest.raises(error) as raised:
        glowplug.compile(nn.Linear(1, 1), **arguments)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", None])
def test_modes_are_accepted(mode, same):
    compiled = glowplug.compile(module_level, mode=mode)
    same(torch.ones(2) * 2, compiled(torch.ones(2)))


def test_fullgraph_raises_with_reason_line_and_hint():
    def breaks(x):
        y = x + 1
        opaque(y)
        return y * 2

    @glowplug.disable
    def opaque(y):
        return y.sum()

    compiled = glowplug.compile(breaks, fullgraph=True)
    with pytest.raises(Exception, match="opaque") as raised:
        compiled(torch.ones(2))
    line = inspect.getsourcelines(breaks)[1] + 2
    assert re.search(rf"test_surface\.py.*{line}", str(raised.value), re.DOTALL)


@pytest.mark.unverified("the traceback leads through verify mode")
def test_a_users_exception_is_the_users():
    def fails(x):
        raise KeyError("mine")

    compiled = glowplug.compile(fails)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine") as raised:
            compiled(torch.ones(2))
        files = [entry.path.name for entry in raised.traceback]
        assert set(files) == {"test_surface.py"}
