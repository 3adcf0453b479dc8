"""Custom autograd functions of every kind, for the tests of them."""

from typing import Any

import torch
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable

from autograd_programs import Compile, data, leaf

SEEN: list[Any] = []
SCALE = 2.0


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x * ctx.k + 1, None


class Two(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x * y, x + y
        ctx.save_for_backward(x, y, a)
        ctx.shape = x.shape
        return a, b, 7, None

    @staticmethod
    def backward(ctx: Any, ga: torch.Tensor, gb: torch.Tensor, *rest: Any) -> Any:
        x, y, a = ctx.saved_tensors
        SEEN.append(("two", rest, ctx.needs_input_grad, tuple(ctx.shape)))
        return ga * y + gb + a, ga * x + gb


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 3


class SortedValues(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        values, index = x.sort()
        ctx.mark_non_differentiable(index)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(index)
        return values, index, values * 2

    @staticmethod
    def backward(ctx: Any, g: Any, gi: Any, g2: Any) -> Any:
        (index,) = ctx.saved_tensors
        SEEN.append(("sorted", g is None, gi is None, g2 is None))
        out = torch.zeros(index.shape)
        for part, scale in ((g, 1), (g2, 2)):
            if part is not None:
                out = out + torch.zeros(index.shape).scatter_add(0, index, part * scale)
        return out


class Identity(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 5


class Flipped(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g.neg()


class Cube(Function):
    """In the style with setup_context, and differentiable twice."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, scale: float = 2.0) -> Any:
        return x**3 * scale, 3 * x**2 * scale

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, scale = inputs
        ctx.save_for_backward(x, output[1])
        ctx.scale = scale

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, gd: torch.Tensor) -> Any:
        x, d = ctx.saved_tensors
        return g * d + gd * 6 * x * ctx.scale, None


class Mapped(Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: torch.Tensor) -> Any:
        SEEN.append(("vmap", info.batch_size, in_dims))
        return Mapped.apply(x), in_dims[0]


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * ctx.saved_tensors[0].cos()


class Raises(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
        SEEN.append("entered")
        if x.sum() > limit:
            raise ValueError(f"more than {limit}")
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * 2, None


class RaisesBackward(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        SEEN.append("backward")
        raise KeyError("no gradient")


class Global(Function):
    """Reads a global, writes an attribute of a class and a list, keeps mutable things on ctx."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, notes: list[Any]) -> torch.Tensor:
        Global.calls += 1
        notes.append(x.shape)
        ctx.notes = notes
        ctx.mine = [1, {"a": x.sum().detach()}]
        ctx.grads = ctx.needs_input_grad
        SEEN.append(("global", torch.is_grad_enabled(), x.requires_grad, ctx.needs_input_grad))
        return x * SCALE

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        ctx.notes.append("backward")
        ctx.mine.append(len(ctx.mine))
        SEEN.append(("mine", ctx.mine[0], ctx.mine[1]["a"], len(ctx.mine), ctx.grads))
        return g * ctx.mine[1]["a"], None


class Inner(Function):
    """Builds a graph of its own in forward, as reentrant checkpointing does in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = Square.apply(ctx.x, 2.0).sin()
        return ctx.y.detach()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return grad(ctx.y, ctx.x, g, retain_graph=True)[0]


class Noise(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float) -> torch.Tensor:
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * ctx.saved_tensors[0], None


class OptionalInputs(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: Any, options: dict[str, Any]) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.options = options
        out = x * options["scale"]
        return out if w is None else out + w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        _, w = ctx.saved_tensors
        SEEN.append(("optional", w is None, ctx.needs_input_grad))
        return g * ctx.options["scale"], None if w is None else g.clone(), None


def steps(compile: Compile, f: Any, *more: Any, calls: int = 4) -> Any:
    """Calls f on leaves of changing contents; everything seen and the gradients."""
    c = compile(f)
    log: list[Any] = []
    SEEN.clear()
    for n in range(calls):
        x = leaf(4, seed=n)
        y = c(x, *more)
        log.append(y)
        loss = y if isinstance(y, torch.Tensor) else sum(t.sum() for t in y if t.requires_grad)
        loss.sum().backward()
        log += [x.grad, list(SEEN)]
    with torch.no_grad():
        log.append(c(leaf(4, seed=9), *more))
    log.append(c(data(4, seed=10), *more))
    log.append(list(SEEN))
    return log
