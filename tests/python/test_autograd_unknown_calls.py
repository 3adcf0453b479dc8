"""What the program reads of gradients and tensors after a call that cannot be looked into."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

import glowplug
from autograd_functions import Dirty, Square
from autograd_programs import Compile, Programs, check, data, leaf, outcome

programs = Programs()
STATE: dict[str, Any] = {"drop": False, "scale": 1.0}


@glowplug.disable
def meddle(p: nn.Parameter) -> None:
    if STATE["drop"]:
        p.grad = None


@glowplug.disable
def replace(holder: Any, name: str) -> None:
    setattr(holder, name, torch.ones(4) * STATE["scale"])


@programs
def gradient_dropped(compile: Compile) -> Any:
    p = nn.Parameter(data(4))

    def f(x: torch.Tensor) -> Any:
        p.grad = None
        (p * x).sum().backward()
        meddle(p)
        return p.grad is None, 0 if p.grad is None else p.grad * 2

    c, log = compile(f), []
    for n, drop in enumerate((False, False, True, True, False, True)):
        STATE["drop"] = drop
        log += [c(data(4, seed=n)), p.grad]
    return log


@programs
def gradient_replaced(compile: Compile) -> Any:
    p = nn.Parameter(data(4))
    p.grad = data(4, seed=8)

    def f(x: torch.Tensor) -> Any:
        before = p.grad * x
        replace(p, "grad")
        after = p.grad * x
        replace(p, "grad")
        return before, after, p.grad + 1

    c, log = compile(f), []
    for n in range(5):
        STATE["scale"] = float(n)
        log += [c(data(4, seed=n)), p.grad]
    return log


@programs
def attribute_replaced(compile: Compile) -> Any:
    holder = SimpleNamespace(t=data(4, seed=8))

    def f(x: torch.Tensor) -> Any:
        before = holder.t * x
        replace(holder, "t")
        after = holder.t * x
        holder.t.add_(1)
        return before, after, holder.t

    c, log = compile(f), []
    for n in range(5):
        STATE["scale"] = float(n)
        log += [c(data(4, seed=n)), holder.t.clone()]
    return log


@programs
def training_step_with_function(compile: Compile) -> Any:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = Square.apply(net(x), 2.0).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss.detach()

    c, log = compile(step), []
    for n in range(6):
        log += [c(data(3, 4, seed=n)), [p.detach().clone() for p in net.parameters()]]
    return log


@programs
def dirty_leaf_or_not(compile: Compile) -> Any:
    c, log = compile(lambda y: Dirty.apply(y) + 1), []
    for n in range(8):
        x = leaf(4, seed=n)
        y = x if n % 3 == 2 else x * 1
        log += [outcome(lambda y=y: c(y)), y, y._version]
    return log


@programs
def seeds(compile: Compile) -> Any:
    def f(x: torch.Tensor, seed: int) -> Any:
        before = torch.get_rng_state()
        torch.manual_seed(seed)
        a = torch.rand(3)
        torch.set_rng_state(before)
        b = torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(-seed)
            d = torch.rand(3) + x
        return a, b, d, torch.rand(3), before

    c, log = compile(f), []
    for n in range(6):
        log += [c(data(3, seed=n), 5 + n // 3), torch.rand(1)]
    return log


@programs
def wrong_state(compile: Compile) -> Any:
    c = compile(lambda x, s: (torch.set_rng_state(s), x * 2)[1])
    good = torch.get_rng_state()
    states = (good, torch.ones(3), torch.ones(3, dtype=torch.uint8), good, 3, good)
    return [outcome(lambda s=s: c(data(3), s)) for s in states]


@programs.parametrize()
def test_program(program: Any, compile: Any) -> None:
    check(program, compile)
