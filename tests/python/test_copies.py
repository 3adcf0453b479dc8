"""Compiled things are copied, pickled, inspected and changed in place as the originals are.

Most tests run one program twice, on a plain thing and on a compiled one, and compare the outcomes.
"""

import copy
import functools
import gc
import inspect
import io
import pickle
import pydoc
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest
import torch
from torch import nn

import glowplug
from copied_modules import Net, hold, plain, twice
from glowplug._compile import entry_of

T = TypeVar("T")


class SelfMade(nn.Module):
    """Compiles its own methods."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.fast = glowplug.compile(self.slow)
        self.forward = glowplug.compile(self.forward)

    def slow(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) + 1


class Generical(nn.Module, Generic[T]):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Adder:
    """A callable object with state."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.amount

    def more(self) -> None:
        self.amount += 1


class SlottedAdder:
    __slots__ = ("amount",)

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.amount


def double(x: torch.Tensor, scale: float = 2) -> torch.Tensor:
    """Scale a tensor."""
    return x * scale


async def later(x: torch.Tensor) -> torch.Tensor:
    return x


@glowplug.compile
def known(x: torch.Tensor) -> torch.Tensor:
    return x - 1


def through_torch(thing: T, **arguments: Any) -> T:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False, **arguments)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "torch": through_torch,
    **{
        f"pickle {number}": lambda thing, number=number: pickle.loads(pickle.dumps(thing, number))
        for number in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}

MAKERS: dict[str, Callable[[Callable[[Any], Any]], nn.Module]] = {
    "module": lambda wrap: wrap(Net()),
    "submodule": hold,
    "module and submodule": lambda wrap: wrap(hold(wrap)),
    "in a list": lambda wrap: nn.ModuleList([wrap(Net()), wrap(nn.Linear(4, 4))]),
    "twice": lambda wrap: nn.Sequential(*[wrap(nn.Linear(4, 4))] * 2),
}


def call(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    parts = list(module) if isinstance(module, nn.ModuleList) else [module]
    return [part(x) for part in parts for _ in range(3)]


# Copies


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_copies_of_modules(maker: str, way: str, used: bool, same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        module, x = MAKERS[maker](wrap), torch.randn(3, 4)
        before = call(module, x) if used else []
        twin = WAYS[way](module)
        for parameter in twin.parameters():
            parameter.data.mul_(0.5)
        results = [before, call(twin, x), call(module, x), call(twin, x)]
        return [results, module.state_dict(), twin.state_dict(), repr(twin)]

    twice(program, same)


@pytest.mark.parametrize("maker", MAKERS)
def test_state_dicts_go_back_and_forth(maker: str, same: Any) -> None:
    x = torch.randn(3, 4)
    torch.manual_seed(1)
    eager = MAKERS[maker](plain).eval()
    torch.manual_seed(2)
    compiled = MAKERS[maker](glowplug.compile).eval()
    call(compiled, x)
    state = through_torch(compiled.state_dict())
    assert list(state) == list(eager.state_dict())
    assert state._metadata == eager.state_dict()._metadata
    assert str(eager.load_state_dict(state)) == "<All keys matched successfully>"
    same(call(eager, x), call(compiled, x))
    torch.manual_seed(3)
    other = MAKERS[maker](plain).eval()
    assert str(compiled.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    same(call(other, x), call(compiled, x))
    compiled.load_state_dict(eager.state_dict(), assign=True)
    same(call(eager, x), call(compiled, x))


def test_weights_only_loads_the_state_of_a_compiled_module(same: Any) -> None:
    buffer = io.BytesIO()
    compiled = glowplug.compile(Net())
    torch.save(compiled.state_dict(), buffer)
    buffer.seek(0)
    same(dict(compiled.state_dict()), dict(torch.load(buffer, weights_only=True)))


def test_a_copy_is_compiled_with_the_same_arguments() -> None:
    compiled = glowplug.compile(Net(), backend="eager", dynamic=False)
    for way in WAYS.values():
        twin = way(compiled)
        assert entry_of(twin) is not None and entry_of(twin) is not entry_of(compiled)
        assert glowplug._compile.config_of(twin) == glowplug._compile.config_of(compiled)


@pytest.mark.parametrize("way", [w for w in WAYS if w != "copy"])
def test_copies_keep_what_was_one_thing_one(way: str) -> None:
    compiled = glowplug.compile(Net())
    pair, alias = WAYS[way]([(compiled, compiled.lin), compiled])
    assert pair[0] is alias
    assert alias.lin is pair[1]


def test_a_module_that_holds_its_own_twin(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        net, x = Net(), torch.randn(3, 4)
        net.__dict__["me"] = [wrap(net)]
        twins = [WAYS[way](net) for way in WAYS if way != "copy"]
        for twin in twins:
            twin.lin.weight.data.mul_(0.5)
        return [[twin.me[0].lin is twin.lin, twin.me[0](x), twin(x)] for twin in (net, *twins)]

    twice(program, same)


@pytest.mark.parametrize("way", WAYS)
def test_a_module_that_compiles_its_own_methods(way: str, same: Any) -> None:
    module, x = SelfMade(), torch.randn(3, 4)
    module(x), module.fast(x)
    twin = WAYS[way](module)
    if way != "copy":
        twin.lin.weight.data.mul_(0.5)
    for _ in range(3):
        same(nn.functional.linear(x, twin.lin.weight, twin.lin.bias) * 2, twin.fast(x))
        same(nn.functional.linear(x, twin.lin.weight, twin.lin.bias) + 1, twin(x))


def test_a_copy_in_training(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        model, x = wrap(hold(wrap)), torch.randn(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        twin = copy.deepcopy(model)
        averaged = torch.optim.swa_utils.AveragedModel(model)
        averaged.update_parameters(model)
        return [twin(x), model(x), averaged(x), [p.grad for p in twin.parameters()]]

    twice(program, same)


def test_a_disabled_module_is_copied_with_its_parameters(same: Any) -> None:
    module, x = glowplug.disable(nn.Linear(4, 4)), torch.randn(3, 4)
    for way in ("deepcopy", "torch", "pickle 2"):
        twin = WAYS[way](module)
        twin.weight.data.zero_()
        same(nn.functional.linear(x, twin.weight, twin.bias), twin(x))
        same(nn.functional.linear(x, module.weight, module.bias), module(x))


def test_copies_do_not_keep_the_original() -> None:
    compiled = glowplug.compile(Net())
    compiled(torch.randn(3, 4))
    twin = copy.deepcopy(compiled)
    watched = [weakref.ref(compiled), weakref.ref(compiled.lin), weakref.ref(entry_of(compiled))]
    del compiled
    gc.collect()
    assert [ref() for ref in watched] == [None] * 3
    twin(torch.randn(3, 4))


# Functions and other callables


@pytest.mark.parametrize("way", WAYS)
def test_functions_are_not_copied_and_are_pickled_by_name(way: str, same: Any) -> None:
    assert WAYS[way](known) is known
    compiled, x = glowplug.compile(double), torch.randn(3)
    twin = WAYS[way](compiled)
    assert twin.__wrapped__ is double
    same(double(x), twin(x))
    if "copy" in way:
        assert twin is compiled


def test_a_local_function_is_not_pickled_as_eager() -> None:
    def local(x: torch.Tensor) -> torch.Tensor:
        return x

    for function in (local, glowplug.compile(local)):
        assert copy.deepcopy(function) is function
        with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
            pickle.dumps(function)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Adder, SlottedAdder])
def test_copies_of_callable_objects(kind: Any, way: str, same: Any) -> None:
    if kind is SlottedAdder and way in ("pickle 0", "pickle 1"):
        pytest.skip("objects with slots are not pickled by these protocols")
    compiled, x = glowplug.compile(kind(2)), torch.randn(3)
    compiled(x)
    twin = WAYS[way](compiled)
    glowplug._compile.original(twin).amount = 5
    for _ in range(2):
        same(x + 5, twin(x))
        same(x + 2, compiled(x))


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_partials_and_bound_methods(way: str, same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        adder, x = Adder(2), torch.randn(3)
        part, bound = wrap(functools.partial(double, scale=3)), wrap(adder.__call__)
        twin, other = WAYS[way](part), WAYS[way](bound)
        adder.amount = 7
        return [f(x) for _ in range(2) for f in (part, bound, twin, other)]

    twice(program, same)


def test_a_compiled_object_is_its_object_in_all_but_the_call(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        adder, x = Adder(2), torch.randn(3)
        compiled = wrap(adder)
        results = [compiled(x), compiled(x)]
        compiled.amount = 4
        results += [compiled(x), adder(x)]
        compiled.more()
        results += [compiled(x), adder(x), compiled.amount, vars(compiled), compiled == adder]
        return [*results, isinstance(compiled, Adder), type(compiled).__name__]

    twice(program, same)


# What inspection shows


def test_functions_are_inspected_as_the_original() -> None:
    compiled = glowplug.compile(double)
    for show in (
        inspect.signature,
        inspect.getdoc,
        inspect.getsource,
        inspect.unwrap,
        inspect.isroutine,
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.getmodule,
        inspect.getfullargspec,
    ):
        assert show(compiled) == show(double)
    assert inspect.iscoroutinefunction(glowplug.compile(later))
    assert "Scale a tensor." in pydoc.render_doc(compiled, renderer=pydoc.plaintext)
    assert "double(x: torch.Tensor" in pydoc.render_doc(compiled, renderer=pydoc.plaintext)
    for name in (*functools.WRAPPER_ASSIGNMENTS, "__defaults__", "__kwdefaults__", "__code__"):
        assert getattr(compiled, name) == getattr(double, name)
    assert compiled.__globals__ is double.__globals__
    assert repr(compiled) == f"<compiled {double!r}>"
    assert not hasattr(compiled, "__self__")


def test_defaults_are_changed_through_the_compiled_function(same: Any) -> None:
    def scale(x: torch.Tensor, by: float = 2) -> torch.Tensor:
        return x * by

    compiled, x = glowplug.compile(scale), torch.randn(3)
    same(x * 2, compiled(x))
    compiled.__defaults__ = (3,)
    same([x * 3, x * 3], [compiled(x), scale(x)])
    compiled.__code__ = (lambda x, by: x - by).__code__
    same([x - 3, x - 3], [compiled(x), scale(x)])


def test_wraps_over_a_compiled_function(same: Any) -> None:
    compiled = glowplug.compile(double)

    @functools.wraps(compiled)
    def wrapper(*args: Any) -> Any:
        return compiled(*args)

    assert wrapper.__name__ == "double"
    assert inspect.signature(wrapper) == inspect.signature(double)
    same(double(torch.ones(2)), wrapper(torch.ones(2)))


def test_the_type_of_a_compiled_module_passes_for_its_class(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        net, x = wrap(Net()).eval(), torch.randn(3, 4)
        net(x)
        cls = type(net)
        fresh, blank = net.fresh().eval(), net.blank()
        fresh.lin.weight.data.zero_()
        blank.lin.weight.data.zero_()
        results = [net(x), fresh(x), blank(x), net.count(), net.count(), Net.made]
        results += [net.same_kind(Net()), Net().same_kind(net), cls == Net, cls != Net]
        results += [{Net: 1}.get(cls), cls in (nn.Linear, Net), hash(cls) == hash(Net)]
        results += [cls.__mro__, cls.__bases__, cls.__module__, cls.__qualname__, cls.__doc__]
        results += [pickle.loads(pickle.dumps(cls)), net.__class__, isinstance(net, cls)]
        results += [issubclass(cls, Net), issubclass(Net, cls), issubclass(nn.Linear, cls)]
        results += [type(fresh), type(blank), list(vars(cls)), inspect.getsource(cls), str(cls)]
        return results

    twice(program, same)


def test_a_class_made_from_the_type_of_a_compiled_module(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        class Gentle(type(wrap(Net()))):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * 0.5

        made = type("Made", (type(wrap(Net())),), {"extra": 3})
        x = torch.randn(3, 4)
        return [Gentle()(x), made()(x), made.extra, Gentle.__mro__[1:]]

    twice(program, same)


def test_a_compiled_module_is_a_key_as_its_module_is() -> None:
    net = Net()
    compiled = glowplug.compile(net)
    assert compiled == net and net == compiled and hash(net) == hash(compiled)
    assert compiled != Net() and Net() != compiled
    assert {net: 1}[compiled] == {compiled: 1}[net] == 1
    assert [net].index(compiled) == 0
    both = nn.ModuleList([net, compiled])
    assert [name for name, _ in both.named_modules()] == ["", "0", "0.lin", "0.norm"]


def test_hooks_find_the_module_in_their_tables(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        model, x, seen = hold(wrap), torch.randn(3, 4), {}
        model.layer.register_forward_hook(lambda m, args, result: seen.update({m: result}))
        model(x), model(x)
        return seen[model.layer]

    twice(program, same)


def test_generic_and_abstract_classes(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        module = wrap(Generical[int]())
        return [module(torch.ones(2)), type(module).__name__, module.__orig_class__]

    twice(program, same)


def test_a_metaclass_does_not_hear_of_it(same: Any) -> None:
    heard = []

    class Meta(type):
        def __new__(mcs, name, bases, namespace):
            heard.append(name)
            return super().__new__(mcs, name, bases, namespace)

        def __call__(cls, *args):
            heard.append(args)
            return super().__call__(*args)

    class Module(nn.Module, metaclass=Meta):
        def forward(self, x):
            return x + 1

    compiled = glowplug.compile(Module())
    same(torch.ones(2) + 1, compiled(torch.ones(2)))
    assert isinstance(type(compiled), Meta)
    assert heard == ["Module", ()]
    type(compiled)()
    assert heard == ["Module", (), ()]
