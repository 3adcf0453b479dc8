"""Replays that stop after a backward pass, and what the program reads from .grad up to there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import glowplug

Step = Callable[[nn.Parameter, nn.Parameter, torch.Tensor], Any]


def zero_first(p: nn.Parameter, q: nn.Parameter, x: torch.Tensor) -> Any:
    had = p.grad is not None
    if had:
        p.grad = None
    ((p - x) ** 2).sum().backward()
    assert p.grad is not None
    if p.grad.sum() > 0:
        return had, p.grad * 2
    return had, p.grad + 1


def two_passes(p: nn.Parameter, q: nn.Parameter, x: torch.Tensor) -> Any:
    seen = [p.grad is None, q.grad is None]
    (p * x).sum().backward()
    seen += [p.grad is None, q.grad is None]
    (q * x).sum().backward()
    seen += [p.grad is None, q.grad is None]
    if x.sum() > 0:
        p.grad = None
    seen.append(p.grad is None)
    if x.prod() > 0:
        q.grad = None
    return seen, p.grad, q.grad


def moved_gradient(p: nn.Parameter, q: nn.Parameter, x: torch.Tensor) -> Any:
    q.grad, p.grad = p.grad, None
    (p * x).sum().backward()
    first = p.grad
    if x.sum() > 0:
        (p * 2).sum().backward()
    return first is p.grad, p.grad, q.grad


def untouched(p: nn.Parameter, q: nn.Parameter, x: torch.Tensor) -> Any:
    (p * x).sum().backward()
    return "none" if q.grad is None else q.grad + 1


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def through_python(p: nn.Parameter, q: nn.Parameter, x: torch.Tensor) -> Any:
    if p.grad is not None:
        p.grad = None
    Doubled.apply(p * x).sum().backward()
    if x.sum() > 0:
        return p.grad + 1
    return p.grad - 1


STEPS: list[Step] = [zero_first, two_passes, moved_gradient, untouched, through_python]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_gradients_read_on_the_way(step: Step, same: Any) -> None:
    def run(call: Step) -> Any:
        p, q = nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.ones(3))
        results = []
        for i, value in enumerate([1.0, 2.0, -1.0, -2.0, 1.0, 0.0, 3.0]):
            if i == 4:
                q.grad = torch.full((3,), 5.0)
            out = call(p, q, torch.tensor([value, 1.0, value / 2]))
            grads = [t.grad.clone() if t.grad is not None else None for t in (p, q)]
            copies = tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, out)
            results.append((copies, grads))
        return results

    same(run(step), run(glowplug.compile(step)))


def resized(x: torch.Tensor) -> Any:
    before = x.shape
    x.unsqueeze_(0)
    after = x.shape
    if x.sum() > 0:
        return before, after, x + 1
    return before, after, x - 1


def other_data(x: torch.Tensor) -> Any:
    before = x.shape
    x.data = x.data[:2]
    if x.sum() > 0:
        return before, x.shape, x + 1
    return before, x.shape, x - 1


@pytest.mark.parametrize("program", [resized, other_data], ids=lambda program: program.__name__)
def test_shapes_read_on_the_way(program: Any, same: Any) -> None:
    compiled = glowplug.compile(program)
    for value in (1.0, 2.0, -1.0, -2.0, 1.0):
        x, y = torch.full((3,), value), torch.full((3,), value)
        same((program(x), x), (compiled(y), y))


def switched_then_no_gradient(x):
    x.requires_grad_()
    x.grad = None


def switched_then_a_gradient(x):
    x.requires_grad = True
    x.grad = torch.ones(2)


def switched_off_then_other_data(x):
    x.requires_grad_().requires_grad_(False)
    x.data = torch.zeros(2)


def switched_then_other_data(x):
    x.requires_grad_()
    x.data = torch.zeros(2)


@pytest.mark.parametrize(
    "program",
    [
        switched_then_no_gradient,
        switched_then_a_gradient,
        switched_off_then_other_data,
        switched_then_other_data,
    ],
)
def test_requires_grad_set_right_before_a_write(program):
    compiled = glowplug.compile(program)
    for _ in range(3):
        expected, x = torch.ones(2), torch.ones(2)
        program(expected)
        compiled(x)
        assert x.requires_grad == expected.requires_grad
        assert torch.equal(x, expected)
        assert (x.grad is None) == (expected.grad is None)
    assert glowplug.counters()["stats"]["replays"] == 2
