"""Hooks on tensors and modules, set before, between and inside of compiled calls, and removed."""

from typing import Any

import pytest
import torch
from torch import nn

from autograd_programs import (
    Compile,
    Programs,
    check,
    check_no_break,
    data,
    gradients_and_seen,
    leaf,
    outcome,
)

programs = Programs()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def train(net: nn.Module, call: Any, log: list[Any], x: torch.Tensor) -> None:
    net.zero_grad()
    y = call(x)
    y.sum().backward()
    log += [y, [None if p.grad is None else p.grad.clone() for p in net.parameters()]]


@programs
def tensor_hook_inside(compile: Compile) -> Any:
    seen: list[Any] = []

    def hook(g: torch.Tensor) -> torch.Tensor:
        seen.append(g.clone())
        return g * 2

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        y.register_hook(hook)
        y.register_hook(lambda g: g + 1)
        return (y * 3).sum()

    return gradients_and_seen(compile(f), seen, calls=4)


@programs
def tensor_hook_captures(compile: Compile) -> Any:
    def f(x: torch.Tensor, k: float) -> Any:
        y = x.sin()
        seen: list[Any] = []
        y.register_hook(lambda g: seen.append(k) or g * k)
        z = (y * 3).sum()
        seen.append("made")
        return z, seen

    c, log = compile(f), []
    for n, k in enumerate((1.0, 1.0, 2.0, 2.0)):
        x = leaf(4, seed=n)
        z, seen = c(x, k)
        z.backward()
        log += [x.grad, seen]
    return log


@programs
def tensor_hook_removed_inside(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        handle = y.register_hook(lambda g: seen.append("removed"))
        z = y * 3
        y.register_hook(lambda g: seen.append("kept"))
        handle.remove()
        return z.sum()

    return gradients_and_seen(compile(f), seen, calls=4)


@programs
def tensor_hook_handle_returned(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        handle = y.register_hook(lambda g: seen.append(g))
        return y.sum(), handle

    c, log = compile(f), []
    for n in range(6):
        x = leaf(4, seed=n)
        y, handle = c(x)
        if n % 2:
            handle.remove()
        y.backward()
        log += [x.grad, list(seen), type(handle).__name__]
    return log


@programs
def tensor_hook_on_input(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        x.register_hook(lambda g: seen.append(g.clone()))
        return (x.sin() * 2).sum()

    return gradients_and_seen(compile(f), seen, calls=4)


@programs
def tensor_hook_on_parameter(compile: Compile) -> Any:
    seen: list[Any] = []
    p = nn.Parameter(data(4))

    def f(x: torch.Tensor) -> Any:
        with torch.no_grad():
            scale = x.abs().sum()
        handle = p.register_hook(lambda g: seen.append(g.clone()))
        y = (x * p * scale).sum()
        return y, handle

    c, log = compile(f), []
    for n in range(5):
        y, handle = c(data(4, seed=n))
        y.backward()
        if n < 3:
            handle.remove()
        log += [p.grad, list(seen)]
    return log


@programs
def tensor_hook_outside(compile: Compile) -> Any:
    p = nn.Parameter(data(4))
    c, log, seen = compile(lambda x: (x * p).sin().sum()), [], []
    handle = None
    for n in range(6):
        p.grad = None
        if n == 2:
            handle = p.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        if n == 4:
            handle.remove()
        c(data(4, seed=n)).backward()
        log += [p.grad, list(seen)]
    return log


@programs
def tensor_hook_no_gradient(compile: Compile) -> Any:
    c = compile(lambda x: x.sin().register_hook(print))
    return [outcome(lambda: c(data(3))) for _ in range(3)]


@programs
def hook_and_backward_inside(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = x.sin()
        y.register_hook(lambda g: seen.append("hook") or g * 2)
        (y * 3).sum().backward()
        seen.append("after")
        return x.grad * 2

    c, log = compile(f), []
    for n in range(4):
        log += [c(data(4, seed=n)), list(seen)]
    return log


@programs
def hook_raises(compile: Compile) -> Any:
    def hook(g: torch.Tensor) -> None:
        raise ValueError("from the hook")

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        y.register_hook(hook)
        return y.sum()

    c = compile(f)
    return [outcome(lambda: c(leaf(3)).backward()) for _ in range(3)]


@programs
def hook_then_branch(compile: Compile) -> Any:
    buffer = torch.zeros(4)
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        handle = y.register_hook(lambda g: seen.append("hook") or g * 2)
        with torch.no_grad():
            buffer.add_(x)
        if x.sum() > 0:
            handle.remove()
            return (y * buffer).sum()
        return (y * 2).sum()

    c, log = compile(f), []
    for n in range(8):
        x = leaf(4, seed=n)
        c(x).backward()
        log += [x.grad, list(seen), buffer.clone()]
    return log


@programs
def named_hook_then_branch(compile: Compile) -> Any:
    buffer = torch.zeros(4)

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        y.register_hook(torch.neg)
        with torch.no_grad():
            buffer.add_(x)
        if x.sum() > 0:
            return (y * buffer).sum()
        return (y * 2).sum()

    c, log = compile(f), []
    for n in range(8):
        x = leaf(4, seed=n)
        c(x).backward()
        log += [x.grad, buffer.clone()]
    return log


@programs
def retain_grad(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        y.retain_grad()
        return y, (y * 3).sum(), y.retains_grad

    c, log = compile(f), []
    for n in range(4):
        x = leaf(4, seed=n)
        y, z, retains = c(x)
        z.backward()
        log += [x.grad, y.grad, retains]
    return log


@programs
def retain_grad_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = x.sin()
        y.retain_grad()
        (y * 3).sum().backward()
        return y.grad * 2, x.grad * 2

    c = compile(f)
    return [c(data(4, seed=n)) for n in range(4)]


@programs
def retain_grad_no_gradient(compile: Compile) -> Any:
    c = compile(lambda x: x.sin().retain_grad())
    return [outcome(lambda: c(data(3))) for _ in range(3)]


@programs
def accumulate_hook_outside(compile: Compile) -> Any:
    p = nn.Parameter(data(4))
    c, log, seen = compile(lambda x: (x * p).sin().sum()), [], []
    handle = None
    for n in range(6):
        p.grad = None
        if n == 2:
            handle = p.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        if n == 4:
            handle.remove()
        c(data(4, seed=n)).backward()
        log += [p.grad, list(seen)]
    return log


@programs
def accumulate_hook_inside(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        w = x.detach().clone().requires_grad_()
        w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        return w, (w * 3).sin().sum()

    c, log = compile(f), []
    for n in range(4):
        w, y = c(data(4, seed=n))
        y.backward()
        log += [w.grad, list(seen)]
    return log


@programs
def optimizer_in_backward(compile: Compile) -> Any:
    p = nn.Parameter(data(4))
    opt = torch.optim.SGD([p], lr=0.1)

    def step(t: torch.Tensor) -> None:
        opt.step()
        opt.zero_grad()

    p.register_post_accumulate_grad_hook(step)

    def f(x: torch.Tensor) -> Any:
        loss = ((x * p) ** 2).sum()
        loss.backward()
        return loss.detach() * 2

    c, log = compile(f), []
    for n in range(5):
        log += [c(data(4, seed=n)), p.detach().clone(), p.grad is None]
    return log


@programs
def module_hooks_between(compile: Compile) -> Any:
    net, log, seen = Net(), [], []
    c = compile(net)
    handles: list[Any] = []

    def pre(module: nn.Module, args: Any) -> Any:
        seen.append("pre")
        return (args[0] + 1,)

    def post(module: nn.Module, args: Any, out: Any) -> Any:
        seen.append("post")
        return out * 2

    def full(module: nn.Module, inputs: Any, outputs: Any) -> Any:
        seen.append(("full", len(inputs), outputs[0].clone()))
        return None

    def full_pre(module: nn.Module, outputs: Any) -> Any:
        seen.append("full_pre")
        return (outputs[0] * 2,)

    def keyword(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        seen.append(("keyword", sorted(kwargs)))

    register = [
        lambda: net.first.register_forward_pre_hook(pre),
        lambda: net.first.register_forward_hook(post),
        lambda: net.register_forward_hook(keyword, with_kwargs=True, always_call=True),
        lambda: net.second.register_full_backward_hook(full),
        lambda: net.second.register_full_backward_pre_hook(full_pre),
        lambda: net.register_forward_pre_hook(pre, prepend=True),
        lambda: net.register_full_backward_hook(full),
    ]
    for make in register:
        train(net, c, log, data(2, 4))
        handles.append(make())
        train(net, c, log, data(2, 4, seed=4))
        train(net, c, log, data(2, 4, seed=5))
        log.append(list(seen))
    for handle in handles:
        handle.remove()
        train(net, c, log, data(2, 4, seed=6))
        log.append(list(seen))
    return log


@programs
def module_full_backward_hook_before(compile: Compile) -> Any:
    net, log, seen = Net(), [], []
    net.first.register_full_backward_hook(
        lambda m, gi, go: (
            seen.append((type(m).__name__, go[0].clone())) or (gi[0] * 2,)
            if gi[0] is not None
            else None
        )
    )
    net.second.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    c = compile(net)
    for n in range(4):
        net.zero_grad()
        x = leaf(2, 4, seed=n)
        y = c(x)
        y.sum().backward()
        log += [y, x.grad, [p.grad.clone() for p in net.parameters()], list(seen)]
    with torch.no_grad():
        log += [c(data(2, 4)), c(data(2, 4, seed=9))]
    return log


@programs
def module_hook_registered_inside(compile: Compile) -> Any:
    net, log, seen = Net(), [], []

    def f(x: torch.Tensor) -> Any:
        handle = net.first.register_forward_hook(lambda m, a, o: seen.append("in") or o + 1)
        y = net(x)
        handle.remove()
        return y

    c = compile(f)
    for n in range(4):
        train(net, c, log, data(2, 4, seed=n))
        log += [list(seen), len(net.first._forward_hooks)]
    return log


@programs
def module_hook_that_counts(compile: Compile) -> Any:
    net, log, counts = Net(), [], {"calls": 0}

    def count(module: nn.Module, args: Any, out: torch.Tensor) -> None:
        counts["calls"] += 1

    net.first.register_forward_hook(count)
    c = compile(net)
    for n in range(5):
        train(net, c, log, data(2, 4, seed=n))
        log.append(dict(counts))
    return log


@programs
def module_hook_keeps_activations(compile: Compile) -> Any:
    net, log, kept = Net(), [], {}
    for name, module in net.named_children():
        module.register_forward_hook(lambda m, a, o, name=name: kept.__setitem__(name, o))
    c = compile(net)
    for n in range(4):
        train(net, c, log, data(2, 4, seed=n))
        log.append(dict(kept))
    return log


@programs
def global_module_hooks(compile: Compile) -> Any:
    net, log, seen = Net(), [], []
    c = compile(net)
    register = nn.modules.module.register_module_forward_hook
    for n in range(4):
        train(net, c, log, data(2, 4, seed=n))
        handle = register(lambda m, a, o: seen.append(type(m).__name__))
        train(net, c, log, data(2, 4, seed=n))
        handle.remove()
        log.append(list(seen))
    return log


@programs
def node_hooks(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        y.grad_fn.register_hook(lambda gi, go: seen.append(("post", go[0].clone())))
        y.grad_fn.register_prehook(lambda go: seen.append("pre") or (go[0] * 2,))
        return (y * 3).sum()

    return gradients_and_seen(compile(f), seen, calls=4)


@programs
def multi_grad_hook(compile: Compile) -> Any:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> Any:
        a, b = x.sin(), x.cos()
        torch.autograd.graph.register_multi_grad_hook(
            (a, b), lambda gs: seen.append([g.clone() for g in gs])
        )
        return (a * b).sum()

    return gradients_and_seen(compile(f), seen, calls=3)


@programs.parametrize()
def test_program(program: Any, compile: Any) -> None:
    check(program, compile)


WHOLE = [
    tensor_hook_inside,
    tensor_hook_captures,
    tensor_hook_removed_inside,
    tensor_hook_handle_returned,
    named_hook_then_branch,
    retain_grad,
    accumulate_hook_inside,
    module_full_backward_hook_before,
    module_hook_keeps_activations,
]


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_no_break(program: Any) -> None:
    check_no_break(program)
