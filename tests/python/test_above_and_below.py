"""Compiled functions under other transforms and modes, and other compilers inside compiled ones.

Each case runs the same with a plain function as with a compiled one, both where the compiled one is
new and where it has been recorded before.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import glowplug

Fn = Callable[..., Any]


def wave(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2 + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).relu() + self.shift


class Noting(TorchDispatchMode):
    """Notes each operator, and doubles what sin gives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        result = func(*args, **(kwargs or {}))
        return result * 2 if "sin" in str(func) else result


class NotingFunctions(TorchFunctionMode):
    """Notes each function of torch, and doubles what sin gives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        result = func(*args, **(kwargs or {}))
        return result * 2 if getattr(func, "__name__", "") == "sin" else result


class Doubling(torch.Tensor):
    """A subclass whose sin is twice a tensor's."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is torch.Tensor.sin else result


class Plain(torch.Tensor):
    """A subclass that changes nothing but the type."""


class Wrapped(torch.Tensor):
    """A wrapper subclass that notes operators."""

    seen: list[str]

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(str(func))
        unwrapped = [a.inner if isinstance(a, Wrapped) else a for a in args]
        return Wrapped(func(*unwrapped, **(kwargs or {})))


def in_dispatch_mode(f: Fn, x: torch.Tensor) -> Any:
    with Noting() as mode:
        result = f(x)
    return [result, mode.seen]


def in_function_mode(f: Fn, x: torch.Tensor) -> Any:
    with NotingFunctions() as mode:
        result = f(x)
    return [result, mode.seen]


def with_subclass(f: Fn, x: torch.Tensor) -> Any:
    results = [f(x.as_subclass(Doubling)), f(x.as_subclass(Plain))]
    return [[type(r), r.as_subclass(torch.Tensor)] for r in results]


def with_wrapper(f: Fn, x: torch.Tensor) -> Any:
    Wrapped.seen = []
    result = f(Wrapped(x))
    return [type(result), result.inner, Wrapped.seen]


def with_fake(f: Fn, x: torch.Tensor) -> Any:
    with FakeTensorMode() as mode:
        inside = f(mode.from_tensor(x))
    outside = f(mode.from_tensor(x))
    return [[type(fake).__name__, fake.shape, fake.dtype] for fake in (inside, outside)]


def symbolic(f: Fn, x: torch.Tensor) -> Any:
    traced = make_fx(f, tracing_mode="symbolic")(x)
    return [traced(torch.ones(5, 4)), traced.code]


def jvp_twice(f: Fn, x: torch.Tensor) -> Any:
    return torch.func.jvp(lambda t: torch.func.jvp(f, (t,), (t,))[1], (x,), (x,))


def dual(f: Fn, x: torch.Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        result = f(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        return list(torch.autograd.forward_ad.unpack_dual(result))


def checkpointed(f: Fn, x: torch.Tensor) -> Any:
    t = x.clone().requires_grad_()
    checkpoint(f, t, use_reentrant=False).sum().backward()
    return t.grad


def with_saved_hooks(f: Fn, x: torch.Tensor) -> Any:
    t = x.clone().requires_grad_()
    packed: list[Any] = []
    pack = lambda saved: packed.append(saved.shape) or saved * 2
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        result = f(t)
    result.sum().backward()
    return [result.detach(), t.grad, packed]


def in_backward(f: Fn, x: torch.Tensor) -> Any:
    t = x.clone().requires_grad_()
    (t * 2).register_hook(f)
    y = t * 3
    y.register_hook(f)
    y.sum().backward()
    return t.grad


def with_anomaly(f: Fn, x: torch.Tensor) -> Any:
    t = x.clone().requires_grad_()
    with torch.autograd.detect_anomaly(check_nan=False):
        f(t).sum().backward()
    return t.grad


def grad_of(f: Fn, x: torch.Tensor) -> Any:
    return torch.func.grad(lambda t: f(t).sum())(x)


def with_device(f: Fn, x: torch.Tensor) -> Any:
    with torch.device("meta"):
        return [f(x), f(torch.empty(2)).device]


def exported(f: Fn, x: torch.Tensor) -> Any:
    if not isinstance(f, nn.Module):
        f = Calling(f)
    return [str(torch.export.export(f, (x,)).graph), torch.export.export(f, (x,)).module()(x)]


class Calling(nn.Module):
    def __init__(self, f: Fn) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: torch.Tensor) -> Any:
        return self.f(x)


CASES: dict[str, tuple[Fn, str | None]] = {
    "dispatch mode": (in_dispatch_mode, "dispatch_mode"),
    "function mode": (in_function_mode, "function_mode"),
    "subclass": (with_subclass, "tensor_subclass"),
    "wrapper subclass": (with_wrapper, "tensor_subclass"),
    "fake tensors": (with_fake, "dispatch_mode"),
    "device context": (with_device, "function_mode"),
    "vmap": (lambda f, x: torch.vmap(f)(x), "functorch"),
    "vmap twice": (lambda f, x: torch.vmap(torch.vmap(f))(x[None]), "functorch"),
    "vmap over columns": (lambda f, x: torch.vmap(f, in_dims=1, out_dims=1)(x.T), "functorch"),
    "grad": (grad_of, "functorch"),
    "jvp": (lambda f, x: torch.func.jvp(f, (x,), (x,)), "functorch"),
    "jvp twice": (jvp_twice, "functorch"),
    "vjp": (lambda f, x: torch.func.vjp(f, x)[1](x), "functorch"),
    "jacrev": (lambda f, x: torch.func.jacrev(f)(x), "functorch"),
    "jacfwd": (lambda f, x: torch.func.jacfwd(f)(x), "functorch"),
    "hessian": (lambda f, x: torch.func.hessian(lambda t: f(t).sum())(x), "functorch"),
    "functionalize": (lambda f, x: torch.func.functionalize(f)(x), "functorch"),
    "forward-mode dual numbers": (dual, None),
    "autograd.functional": (lambda f, x: torch.autograd.functional.jacobian(f, x), None),
    "gradcheck": (
        lambda f, x: torch.autograd.gradcheck(f, x.double().requires_grad_()),
        None,
    ),
    "checkpoint": (checkpointed, None),
    "saved tensor hooks": (with_saved_hooks, "saved_tensor_hooks"),
    "hook in backward": (in_backward, "inside_backward"),
    "anomaly mode": (with_anomaly, "anomaly_mode"),
    "jit.trace": (lambda f, x: torch.jit.trace(f, (x,))(x * 2), "jit_tracing"),
    "make_fx": (lambda f, x: [make_fx(f)(x)(x * 2), make_fx(f)(x).code], "dispatch_mode"),
    "make_fx symbolic": (symbolic, "dispatch_mode"),
    "export": (exported, "dispatch_mode"),
    "fx": (lambda f, x: [torch.fx.symbolic_trace(lambda t: f(t) + 1).code] * 2, None),
}


@contextlib.contextmanager
def reasons() -> Iterator[dict[str, int]]:
    """What is refused in the block, by reason."""
    found: dict[str, int] = {}
    before = glowplug.counters()["refusals"]
    yield found
    after = glowplug.counters()["refusals"]
    found.update({r: n - before.get(r, 0) for r, n in after.items() if n > before.get(r, 0)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recorded", [False, True], ids=["new", "recorded"])
@pytest.mark.parametrize("case", CASES)
def test_under(case: str, recorded: bool, same: Any) -> None:
    run, reason = CASES[case]
    x = torch.randn(3, 4)
    compiled = glowplug.compile(wave)
    expected = run(wave, x)
    if recorded:
        compiled(x), compiled(x)
    with reasons() as found:
        for _ in range(3):
            same(expected, run(compiled, x))
    assert reason is None or reason in found
    replays = glowplug.counters()["stats"]["replays"]
    for _ in range(3):
        same(wave(x), compiled(x))
    if case != "fx":
        assert glowplug.counters()["stats"]["replays"] >= replays + 2


# Those that a module with parameters of its own cannot be put under.
NOT_FOR_MODULES = {"subclass", "wrapper subclass", "fake tensors", "make_fx symbolic", "gradcheck"}
NOT_FOR_MODULES |= {"vmap twice", "vmap over columns", "fx"}
MODULE_CASES = [case for case in CASES if case not in NOT_FOR_MODULES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", MODULE_CASES)
def test_modules_under(case: str, same: Any) -> None:
    run, reason = CASES[case]
    x, net = torch.randn(4, 4), Net()
    if case == "device context":
        net.shift = None
        net.forward = lambda x: net.lin(x).relu()
        x = x.to("meta")
        net.to("meta")
        run = lambda f, x: [in_device(f, x)]
    compiled = glowplug.compile(net)
    expected = run(net, x)
    for recorded in (False, True):
        if recorded:
            compiled(x), compiled(x)
        with reasons() as found:
            same(expected, run(compiled, x))
        assert reason is None or reason in found


def in_device(f: Fn, x: torch.Tensor) -> Any:
    with torch.device("meta"):
        return [f(x).device, f(torch.empty(4, 4)).shape]


# torch.compile


@pytest.fixture
def dynamo() -> Iterator[Any]:
    import torch._dynamo

    torch._dynamo.reset()
    yield torch._dynamo
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("recorded", [False, True], ids=["new", "recorded"])
def test_torch_compile_above(recorded: bool, fullgraph: bool, dynamo: Any, same: Any) -> None:
    other = functools.partial(torch.compile, backend="eager", fullgraph=fullgraph)
    x, net = torch.randn(3, 4), Net()
    inner, module = glowplug.compile(wave), glowplug.compile(net)
    if recorded:
        inner(x), module(x)
    above, module_above = other(inner), other(module)
    for n in (1, 2, 1, 2):
        t = torch.randn(n, 4)
        same(wave(t), above(t))
        same(net(t), module_above(t))
        same(wave(t), inner(t))
    if not fullgraph:
        outer = other(lambda t: inner(t.cos()) + module(t))
        for _ in range(3):
            same(wave(x.cos()) + net(x), outer(x))


BLACK_BOX = "torch.compile's own capture does not know how to call an entry from inside a graph"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.xfail(strict=True, reason=BLACK_BOX)
def test_torch_compile_above_in_one_graph(dynamo: Any, same: Any) -> None:
    x, inner = torch.randn(3, 4), glowplug.compile(wave)
    outer = torch.compile(lambda t: inner(t.cos()), backend="eager", fullgraph=True)
    same(wave(x.cos()), outer(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.xfail(strict=True, reason=BLACK_BOX)
def test_strict_export(dynamo: Any, same: Any) -> None:
    x, net = torch.randn(3, 4), Net()
    exported = torch.export.export(glowplug.compile(net), (x,), strict=True)
    same(net(x), exported.module()(x))


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_below_and_inside(dynamo: Any, same: Any) -> None:
    other = functools.partial(torch.compile, backend="eager")
    x, net = torch.randn(3, 4), Net()
    net_below = Net()
    net_below.load_state_dict(net.state_dict())
    net_below.compile(backend="eager")
    below = glowplug.compile(other(wave))
    module_below = glowplug.compile(other(net))
    compiled_in_place = glowplug.compile(net_below)
    inside = glowplug.compile(lambda t: other(wave)(t) * 2)
    for n in (3, 2, 3, 2):
        t = x[:n]
        same(wave(t), below(t))
        same(net(t), module_below(t))
        same(net(t), compiled_in_place(t))
        same(wave(t) * 2, inside(t))
    plain = glowplug.compile(wave)
    before = glowplug.counters()["stats"]["replays"]
    for _ in range(3):
        same(wave(x), plain(x))
    assert glowplug.counters()["stats"]["replays"] == before + 2


INSIDE: dict[str, Fn] = {
    "vmap": lambda f, t: torch.vmap(f)(t) + 1,
    "grad": lambda f, t: grad_of(f, t) + 1,
    "jvp": lambda f, t: torch.func.jvp(f, (t,), (t,))[1] + f(t),
    "dispatch mode": in_dispatch_mode,
    "function mode": in_function_mode,
    "saved tensor hooks": with_saved_hooks,
    "checkpoint": checkpointed,
    "make_fx": lambda f, t: make_fx(f)(t)(t),
    "fx": lambda f, t: torch.fx.symbolic_trace(lambda u: f(u) + 1)(t),
    "subclass": with_subclass,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", list(INSIDE))
def test_transforms_inside_a_compiled_function(name: str, nested: bool, same: Any) -> None:
    x, program = torch.randn(3, 4), INSIDE[name]
    f = glowplug.compile(wave) if nested else wave
    compiled = glowplug.compile(lambda t: program(f, t))
    for _ in range(3):
        same(program(wave, x), compiled(x))


def test_a_mode_entered_between_calls(same: Any) -> None:
    compiled, x = glowplug.compile(wave), torch.randn(3, 4)
    for _ in range(3):
        same(wave(x), compiled(x))
        same(in_dispatch_mode(wave, x), in_dispatch_mode(compiled, x))
        same(in_function_mode(wave, x), in_function_mode(compiled, x))
        same(torch.vmap(wave)(x), torch.vmap(compiled)(x))
    stats = glowplug.counters()["stats"]
    assert (stats["recordings"], stats["replays"], stats["bypassed"]) == (1, 2, 9)


def test_default_device_and_dtype(same: Any) -> None:
    def make(x: torch.Tensor) -> Any:
        return [torch.ones(2), torch.ones(2).device.type, torch.tensor(1.5), x + 1.5]

    compiled, x = glowplug.compile(make), torch.ones(2)
    for _ in range(2):
        same(make(x), compiled(x))
        torch.set_default_dtype(torch.float64)
        try:
            same(make(x), compiled(x))
        finally:
            torch.set_default_dtype(torch.float32)
        torch.set_default_device("meta")
        try:
            assert compiled(x)[1] == "meta" and compiled(x)[0].is_meta
        finally:
            torch.set_default_device(None)
