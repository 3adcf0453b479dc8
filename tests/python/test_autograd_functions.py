"""torch.autograd.Function in compiled programs: results, gradients and ctx as eager."""

from typing import Any

import pytest
import torch
from torch.autograd import grad

import autograd_functions
import glowplug
from autograd_functions import (
    SEEN,
    Cube,
    Dirty,
    Flipped,
    Global,
    Identity,
    Inner,
    Noise,
    Once,
    OptionalInputs,
    Raises,
    RaisesBackward,
    SortedValues,
    Square,
    Two,
    steps,
)
from autograd_programs import Compile, Programs, check, data, leaf, outcome
from conftest import graph_counts

programs = Programs()


@programs
def square(compile: Compile) -> Any:
    return steps(compile, lambda x: Square.apply(x.sin(), 3) * 2)


@programs
def square_varying_constant(compile: Compile) -> Any:
    c, log = compile(lambda x, k: Square.apply(x.sin(), k).sum()), []
    for k in (1.0, 2.0, 3.0, 1.0):
        x = leaf(4)
        y = c(x, k)
        y.backward()
        log += [y, x.grad]
    return log


@programs
def several_outputs(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        a, b, seven, nothing = Two.apply(x * 2, x.cos())
        return a * seven, b + (0 if nothing is None else 1)

    return steps(compile, f)


@programs
def several_outputs_tuple(compile: Compile) -> Any:
    c, log = compile(lambda x: Two.apply(x * 2, x.cos())), []
    for n in range(3):
        out = c(leaf(3, seed=n))
        log.append((out, type(out)))
    return log


@programs
def dirty(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        z = Dirty.apply(y)
        return z is y, (y * z), z

    c, log = compile(f), []
    for n in range(4):
        x = leaf(4, seed=n)
        same, p, z = c(x)
        p.sum().backward()
        log += [same, p, z, x.grad]
    return log


@programs
def dirty_input(compile: Compile) -> Any:
    c, log = compile(lambda y: Dirty.apply(y) + 1), []
    for n in range(4):
        x = leaf(4, seed=n)
        y = x * 1
        z = c(y)
        z.sum().backward()
        log += [y, z, x.grad, y._version]
    return log


@programs
def dirty_leaf(compile: Compile) -> Any:
    c = compile(lambda y: Dirty.apply(y) + 1)
    return [outcome(lambda: c(leaf(4))) for _ in range(3)]


@programs
def not_differentiable(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        values, index, double = SortedValues.apply(x * 2)
        return values, index, double

    return steps(compile, f)


@programs
def not_materialized(compile: Compile) -> Any:
    return steps(compile, lambda x: SortedValues.apply(x * 2)[2] + 1)


@programs
def identity(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = Identity.apply(x)
        return (y * 2,)

    return steps(compile, f)


@programs
def identity_is_not_input(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        z = Identity.apply(y)
        return z is y, z._is_view(), z.grad_fn is y.grad_fn

    c = compile(f)
    return [c(leaf(3)) for _ in range(3)] + [c(data(3)) for _ in range(3)]


@programs
def output_is_view(compile: Compile) -> Any:
    return steps(compile, lambda x: Flipped.apply(x * 2) * 3)


@programs
def view_written(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = Flipped.apply(x * 2)
        return y.add_(1)

    c = compile(f)
    return [outcome(lambda n=n: c(leaf(3, seed=n))) for n in range(3)]


@programs
def setup_context(compile: Compile) -> Any:
    return steps(compile, lambda x: Cube.apply(x.sin(), 1.5)[0] + x)


@programs
def setup_context_defaults(compile: Compile) -> Any:
    return steps(compile, lambda x: Cube.apply(x.sin())[0] + x)


@programs
def double_backward_outside(compile: Compile) -> Any:
    c, log = compile(lambda x: Cube.apply(x.sin(), 1.5)[0].sum()), []
    for n in range(4):
        x = leaf(4, seed=n)
        (g,) = grad(c(x), x, create_graph=True)
        (gg,) = grad(g.sum(), x)
        log += [g, gg]
    return log


@programs
def double_backward_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        (g,) = grad(Cube.apply(x.sin(), 1.5)[0].sum(), x, create_graph=True)
        (gg,) = grad((g * g).sum(), x)
        return g.detach(), gg

    c = compile(f)
    return [c(data(4, seed=n)) for n in range(4)]


@programs
def once(compile: Compile) -> Any:
    def twice(c: Any, n: int) -> Any:
        x = leaf(4, seed=n)
        (g,) = grad(c(x).sum(), x, create_graph=True)
        return g, grad(g.sum(), x)

    c = compile(lambda x: Once.apply(x * 2))
    return steps(compile, lambda x: Once.apply(x * 2)), [
        outcome(lambda n=n: twice(c, n)) for n in range(3)
    ]


@programs
def forward_raises(compile: Compile) -> Any:
    c, log = compile(lambda x, k: Raises.apply(x * 2, k) + 1), []
    SEEN.clear()
    for limit in (100.0, 100.0, -100.0, -100.0, 100.0):
        log.append(outcome(lambda limit=limit: c(leaf(4), limit)))
        log.append(list(SEEN))
    return log


@programs
def forward_raises_caught(compile: Compile) -> Any:
    def f(x: torch.Tensor, k: float) -> Any:
        try:
            return Raises.apply(x * 2, k) + 1
        except ValueError as error:
            return x * 3, str(error)

    c = compile(f)
    return [c(leaf(4), k) for k in (100.0, 100.0, -100.0, -100.0, 100.0)]


@programs
def backward_raises(compile: Compile) -> Any:
    c = compile(lambda x: RaisesBackward.apply(x.sin()).sum())
    SEEN.clear()
    return [outcome(lambda: c(leaf(3)).backward()) for _ in range(3)], list(SEEN)


@programs
def backward_raises_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        RaisesBackward.apply(x.sin()).sum().backward()
        return x.grad

    c = compile(f)
    SEEN.clear()
    return [outcome(lambda: c(leaf(3))) for _ in range(3)], list(SEEN)


@programs
def state_around(compile: Compile) -> Any:
    notes: list[Any] = []
    c, log = compile(lambda x: Global.apply(x + 1, notes) * 2), []
    SEEN.clear()
    Global.calls = 0
    try:
        for n, scale in enumerate((2.0, 2.0, 3.0, 3.0)):
            autograd_functions.SCALE = scale
            x = leaf(4, seed=n)
            y = c(x)
            y.sum().backward()
            log += [y, x.grad, list(notes), Global.calls, list(SEEN)]
    finally:
        autograd_functions.SCALE = 2.0
    return log


@programs
def list_shared_with_ctx(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        notes: list[Any] = ["fresh"]
        y = Global.apply(x + 1, notes)
        notes.append("after")
        return y * 2, notes

    c, log = compile(f), []
    SEEN.clear()
    for n in range(4):
        x = leaf(4, seed=n)
        y, notes = c(x)
        y.sum().backward()
        log += [y, x.grad, notes, list(SEEN)]
    return log


@programs
def graph_in_forward(compile: Compile) -> Any:
    return steps(compile, lambda x: Inner.apply(x * 2) + 1)


@programs
def random_in_forward(compile: Compile) -> Any:
    return steps(compile, lambda x: Noise.apply(x * 2, 0.5) + torch.rand(4))


@programs
def optional_inputs(compile: Compile) -> Any:
    options = {"scale": 2.0}
    c, log = compile(lambda x, w: OptionalInputs.apply(x + 1, w, options) * 2), []
    SEEN.clear()
    for n, w in enumerate((None, None, data(4), data(4), leaf(4), leaf(4))):
        x = leaf(4, seed=n)
        y = c(x, w)
        y.sum().backward()
        options["scale"] += 1 if n % 2 else 0
        log += [y, x.grad, None if w is None else w.grad, list(SEEN)]
    return log


@programs
def nested(compile: Compile) -> Any:
    return steps(compile, lambda x: Square.apply(Identity.apply(Square.apply(x, 2)), 3) + 1)


@programs
def in_module(compile: Compile) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.seen = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return Square.apply(self.linear(x), 2.0).relu()

    torch.manual_seed(0)
    net = Net()
    c, log = compile(net), []
    for n in range(4):
        net.zero_grad()
        y = c(data(2, 4, seed=n))
        y.sum().backward()
        log += [y, [p.grad.clone() for p in net.parameters()]]
    return log


@programs
def no_grad_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = Square.apply(x * 2, 3.0)
        return y, Square.apply(y, 2.0), Square.apply(x, 2.0)

    return steps(compile, f)


@programs
def backward_inside(compile: Compile) -> Any:
    w = leaf(4)

    def f(x: torch.Tensor) -> Any:
        w.grad = None
        loss = Square.apply(w * x, 2.0).sum()
        loss.backward()
        return loss.detach() * 2, w.grad * 2

    c = compile(f)
    return [(c(data(4, seed=n)), w.grad) for n in range(4)]


@programs
def attributes_of_ctx(compile: Compile) -> Any:
    c, log = compile(lambda x: Square.apply(x.sin(), 3.0)), []
    for n in range(3):
        y = c(leaf(4, seed=n))
        node = y.grad_fn
        log += [node.name(), node.k, node.saved_tensors, node.needs_input_grad, type(node).__name__]
        log += [sorted(vars(node)), isinstance(node, Square._backward_cls), node.dirty_tensors]
        log += [node.to_save, node.non_differentiable]
        log += [[(e[0].name(), e[1]) for e in node.next_functions if e[0]]]
    return log


@programs.parametrize()
def test_program(program: Any, compile: Any) -> None:
    check(program, compile)


def f_square(x: torch.Tensor) -> torch.Tensor:
    return Square.apply(x.sin(), 3).sum()


def f_two(x: torch.Tensor) -> torch.Tensor:
    a, b, _, _ = Two.apply(x * 2, x.cos())
    return (a * b).sum()


def f_cube(x: torch.Tensor) -> torch.Tensor:
    return Cube.apply(x.sin())[0].sum()


def f_noise(x: torch.Tensor) -> torch.Tensor:
    return Noise.apply(x * 2, 0.5).sum()


@pytest.mark.parametrize("f", [f_square, f_two, f_cube, f_noise])
def test_one_graph(f: Any) -> None:
    c = glowplug.compile(f, backend="eager")
    for n in range(3):
        c(leaf(4, seed=n)).backward()
    assert graph_counts() == (1, 0)
    assert len(c.describe()["traces"]) == 1


def test_gradcheck() -> None:
    c = glowplug.compile(lambda x: Cube.apply(x.sin())[0], backend="eager")
    x = leaf(3).double().detach().requires_grad_()
    assert torch.autograd.gradcheck(c, (x,))
    assert torch.autograd.gradgradcheck(c, (x,))
