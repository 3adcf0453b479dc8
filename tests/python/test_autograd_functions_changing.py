"""torch.autograd.Function: exceptions, branches, transforms and what changes between calls."""

from typing import Any

import torch
from torch.autograd import Function

from autograd_functions import (
    SEEN,
    Cube,
    Identity,
    Mapped,
    Square,
    steps,
)
from autograd_programs import Compile, Programs, check, data, leaf, outcome

programs = Programs()


@programs
def freed_twice(compile: Compile) -> Any:
    def f(c: Any) -> Any:
        y = c(leaf(4)).sum()
        y.backward()
        y.backward()

    c = compile(lambda x: Square.apply(x.sin(), 3.0))
    return [outcome(lambda: f(c)) for _ in range(3)]


@programs
def saved_then_written(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        z = Square.apply(y, 3.0)
        y.add_(1)
        return z.sum()

    c = compile(f)
    return [outcome(lambda: c(leaf(4)).backward()) for _ in range(3)]


@programs
def under_vmap(compile: Compile) -> Any:
    SEEN.clear()
    c = compile(torch.vmap(lambda x: Mapped.apply(x * 2) + Cube.apply(x)[0]))
    return [c(data(3, 4, seed=n)) for n in range(3)], list(SEEN)


@programs
def under_func_grad(compile: Compile) -> Any:
    c = compile(torch.func.grad(lambda x: (Mapped.apply(x * 2) + Cube.apply(x)[0]).sum()))
    return [c(data(4, seed=n)) for n in range(3)]


@programs
def above_func_grad(compile: Compile) -> Any:
    c = torch.func.grad(compile(lambda x: (Mapped.apply(x * 2) + Cube.apply(x)[0]).sum()))
    return [c(data(4, seed=n)) for n in range(3)]


@programs
def branch_behind(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = Square.apply(x, 2.0)
        if x.sum() > 0:
            return Square.apply(y, 3.0)
        return Identity.apply(y) * 2

    return steps(compile, f, calls=8)


@programs
def branch_behind_write(compile: Compile) -> Any:
    buffer = torch.zeros(4)

    def f(x: torch.Tensor) -> Any:
        with torch.no_grad():
            buffer.add_(x)
        y = Square.apply(x, 2.0)
        if x.sum() > 0:
            return Square.apply(y, 3.0) + buffer
        return Identity.apply(y) * 2

    return steps(compile, f, calls=8), buffer


@programs
def branch_in_forward(compile: Compile) -> Any:
    class Branches(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.positive = bool(x.sum() > 0)
            return x * 2 if ctx.positive else x * 3

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * (2 if ctx.positive else 3)

    return steps(compile, lambda x: Branches.apply(x * 2).sin(), calls=8)


@programs
def number_on_ctx(compile: Compile) -> Any:
    class Norm(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.norm = x.norm().item()
            return x / ctx.norm

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g / ctx.norm

    return steps(compile, lambda x: Norm.apply(x * 2).sin(), calls=5)


@programs
def replaced_forward(compile: Compile) -> Any:
    class Changing(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 2

    def other(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 5

    c, log = compile(lambda x: Changing.apply(x + 1)), []
    for n in range(6):
        if n == 3:
            Changing.forward = staticmethod(other)  # type: ignore[method-assign]
        x = leaf(3, seed=n)
        y = c(x)
        y.sum().backward()
        log += [y, x.grad]
    return log


@programs
def wrong_results(compile: Compile) -> Any:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, how: int) -> Any:
            if how == 1:
                ctx.save_for_backward(3)
            if how == 2:
                ctx.mark_dirty(x + 1)
            if how == 3:
                ctx.mark_non_differentiable(5)
            return [x * 2] if how == 4 else x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return g if g.sum() > 100 else (g, None)

    c = compile(lambda x, how: Wrong.apply(x + 1, how))
    return [outcome(lambda how=how: c(leaf(3), how)) for how in (0, 1, 1, 2, 2, 3, 3, 4, 4, 0)]


@programs
def context_leaves(compile: Compile) -> Any:
    kept: list[Any] = []

    class Kept(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            kept.append(ctx)
            ctx.n = len(kept)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            ctx.n += 1
            return g * ctx.n

    c, log = compile(lambda x: Kept.apply(x.sin())), []
    for n in range(4):
        x = leaf(3, seed=n)
        y = c(x)
        y.sum().backward()
        log += [y, x.grad, len(kept), kept[-1].n, kept[-1] is y.grad_fn]
    return log


@programs.parametrize()
def test_program(program: Any, compile: Any) -> None:
    check(program, compile)
