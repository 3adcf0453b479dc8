"""How the autograd tests run a program: eager and compiled, several calls, everything compared.

A program takes `compile` (the identity, or glowplug.compile) and gives whatever is to be equal.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug
from conftest import assert_same

Compile = Callable[..., Any]
Program = Callable[[Compile], Any]


def eager(function: Any) -> Any:
    return function


def compiled(function: Any) -> Any:
    return glowplug.compile(function, backend="eager")


def split(function: Any) -> Any:
    """Compiled, with every segment in the hands of a backend."""
    return glowplug.compile(function, backend=lambda graph, inputs: graph)


def data(*sizes: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def leaf(*sizes: int, seed: int = 3) -> torch.Tensor:
    return data(*sizes, seed=seed).requires_grad_()


def plain(value: Any) -> Any:
    """Without autograd history, which assert_same does not look at; what there is of it as text."""
    if isinstance(value, torch.Tensor):
        node = value.grad_fn.name() if value.grad_fn is not None else None
        return value.detach().clone(), value.requires_grad, node
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    return value


def outcome(call: Callable[[], Any]) -> Any:
    """What the call gives, or what it raises."""
    try:
        return plain(call())
    except Exception as error:
        return type(error).__name__, str(error)


def check(program: Program, compile: Compile = compiled) -> None:
    torch.manual_seed(0)
    expected = plain(program(eager))
    state = torch.get_rng_state()
    glowplug.reset()
    torch.manual_seed(0)
    got = plain(program(compile))
    assert_same(expected, got)
    assert torch.equal(state, torch.get_rng_state())


def check_no_break(program: Program) -> None:
    program(compiled)
    counted = glowplug.counters()
    assert not counted["graph_break"]
    assert not counted["refusals"]
    assert counted["stats"]["replays"] > 0


def gradients_and_seen(function: Any, seen: list[Any], calls: int) -> list[Any]:
    """Calls with another leaf each, and backward: its gradient, and what hooks have seen so far."""
    log: list[Any] = []
    for n in range(calls):
        x = leaf(4, seed=n)
        function(x).backward()
        log += [x.grad, list(seen)]
    return log


class Programs(list[Program]):
    """Collects programs by decorator."""

    def __call__(self, program: Program) -> Program:
        self.append(program)
        return program

    def parametrize(self) -> Any:
        def decorate(test: Any) -> Any:
            test = pytest.mark.parametrize("compile", [compiled, split])(test)
            return pytest.mark.parametrize("program", self, ids=lambda p: p.__name__)(test)

        return decorate
