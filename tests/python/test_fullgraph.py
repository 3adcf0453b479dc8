"""fullgraph=True: a graph that breaks is an error; the call that met it leaves nothing behind."""

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug

COUNT = 0


@glowplug.disable
def opaque(value: torch.Tensor) -> None:
    """Breaks the graph between operators."""


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1


class Counted:
    total = 0


def state() -> types.SimpleNamespace:
    linear = torch.nn.Linear(2, 2)
    linear.bias.grad = torch.ones(2)
    linear.register_buffer("steps", torch.zeros(3))
    return types.SimpleNamespace(
        name="before",
        items=[1, 2],
        table={"a": 1},
        chosen={1},
        queue=collections.deque([1, 2]),
        slotted=Slotted(),
        linear=linear,
    )


def described(at: types.SimpleNamespace) -> dict[str, Any]:
    tensors = {**dict(at.linear.named_parameters()), **dict(at.linear.named_buffers())}
    return {
        "name": at.name,
        "attributes": sorted(vars(at)),
        "containers": (list(at.items), list(at.table.items()), set(at.chosen), list(at.queue)),
        "slot": at.slotted.value,
        "class": Counted.total,
        "global": COUNT,
        "random": torch.get_rng_state().tolist(),
        "modules": dict(at.linear.__dict__["_parameters"]),
        "tensors": {k: (t.tolist(), t.stride(), t.requires_grad) for k, t in tensors.items()},
        "gradients": {k: t.grad if t.grad is None else t.grad.tolist() for k, t in tensors.items()},
    }


def attributes(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    at.name = "after"
    at.new = x
    del at.items


def containers(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    at.items.append(x)
    at.items[0] = 3
    at.items += [4]
    at.table["b"] = x
    del at.table["a"]
    at.chosen.add(2)
    at.queue.popleft()
    at.queue.append(x)


def places(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    global COUNT
    at.slotted.value = 2
    Counted.total += 1
    COUNT += 1


def contents(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    at.linear.steps += 1
    at.linear.steps[0:2].mul_(3)
    with torch.no_grad():
        at.linear.weight.zero_()


def random_numbers(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    torch.rand(3)


def gradients(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    at.linear(x).sum().backward()


def fields(at: types.SimpleNamespace, x: torch.Tensor) -> None:
    at.linear.weight.data = torch.zeros(2, 2).t()
    at.linear.bias.grad = None
    at.linear.weight.requires_grad_(False)


CHANGES = [attributes, containers, places, contents, random_numbers, gradients, fields]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_breaking_call_leaves_nothing_behind(change: Callable[..., None]) -> None:
    def f(at: types.SimpleNamespace, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        change(at, x)
        opaque(y)
        return y * 2

    at = state()
    before = described(at)
    compiled = glowplug.compile(f, fullgraph=True)
    with pytest.raises(RuntimeError, match="fullgraph=True"):
        compiled(at, torch.ones(2))
    assert described(at) == before
    f(at, torch.ones(2))  # the change is one that is seen
    at.items = getattr(at, "items", [])
    assert described(at) != before


def test_the_program_stops_at_what_cannot_be_recorded() -> None:
    reached: list[str] = []

    def f(x: torch.Tensor, at: types.SimpleNamespace) -> torch.Tensor:
        at.name = "after"
        at.linear.weight._backward_hooks = None  # a write that is not recorded
        try:
            reached.append("on")
            at.items.append(1)
        except Exception:
            at.items.append(2)
        return x + 1

    at = state()
    before = described(at)
    compiled = glowplug.compile(f, fullgraph=True)
    with pytest.raises(RuntimeError, match="fullgraph=True") as raised:
        compiled(torch.ones(2), at)
    assert "test_fullgraph.py" in str(raised.value)
    assert reached == []
    assert described(at) == before


def test_a_users_exception_stays_the_users() -> None:
    def f(x: torch.Tensor, at: types.SimpleNamespace) -> torch.Tensor:
        at.name = "after"
        raise KeyError("mine")

    at = state()
    with pytest.raises(KeyError, match="mine"):
        glowplug.compile(f, fullgraph=True)(torch.ones(2), at)
    assert at.name == "after"


def test_a_whole_graph_is_no_error() -> None:
    def f(x: torch.Tensor, at: types.SimpleNamespace) -> torch.Tensor:
        at.items.append(1)
        at.linear.steps += 1
        return x + at.linear.steps.sum()

    at = state()
    compiled = glowplug.compile(f, fullgraph=True)
    assert [compiled(torch.zeros(1), at).item() for _ in range(3)] == [3.0, 6.0, 9.0]
    assert at.items == [1, 2, 1, 1, 1]
