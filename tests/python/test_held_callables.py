"""Methods and partials that are held: what they are bound to is read anew at each call."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.parts = [factor]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    def last(self, x: torch.Tensor, *, power: int = 1) -> torch.Tensor:
        return x * self.parts[-1] ** power


def held_in_list(owner: Scale) -> Callable[..., Any]:
    held = [owner.apply]
    return lambda x: held[0](x)


def held_in_closure(owner: Scale) -> Callable[..., Any]:
    method = owner.apply
    return lambda x: method(x)


def held_in_attribute(owner: Scale) -> Callable[..., Any]:
    class Holder:
        def __init__(self) -> None:
            self.call = owner.apply

    holder = Holder()
    return lambda x: holder.call(x)


def called_by_c(owner: Scale) -> Callable[..., Any]:
    held = [owner.apply]
    return lambda x: next(iter(map(held[0], [x])))


def called_with_star(owner: Scale) -> Callable[..., Any]:
    held = {"call": owner.last}
    return lambda x: held["call"](*[x], **{"power": 2})


def partial_called_by_c(owner: Scale) -> Callable[..., Any]:
    held = [functools.partial(Scale.last, owner, power=2)]
    return lambda x: next(map(held[0], [x]))


def partial_of_method(owner: Scale) -> Callable[..., Any]:
    held = functools.partial(owner.last, power=3)
    return lambda x: held(x)


def builtin_method(owner: Scale) -> Callable[..., Any]:
    index = owner.parts.__getitem__
    return lambda x: x * index(-1)


def builtin_called_by_c(owner: Scale) -> Callable[..., Any]:
    index = [owner.parts.__getitem__]
    return lambda x: x * next(map(index[0], [-1]))


def key_of_sorted(owner: Scale) -> Callable[..., Any]:
    class Order:
        def of(self, value: float) -> float:
            return value * owner.factor

    key = [Order().of]
    return lambda x: x * sorted([1.0, 2.0], key=key[0])[0]


@pytest.mark.parametrize(
    "make",
    [
        held_in_list,
        held_in_closure,
        held_in_attribute,
        called_by_c,
        called_with_star,
        partial_called_by_c,
        partial_of_method,
        builtin_method,
        builtin_called_by_c,
        key_of_sorted,
    ],
)
@pytest.mark.parametrize("audit", [False, True])
def test_what_it_is_bound_to_may_change(make: Callable[..., Any], audit: bool) -> None:
    owner = Scale(2.0)
    target = make(owner)
    compiled = glowplug.compile(target, backend="eager", options={"audit": audit})
    x = torch.randn(3)
    for factor in (2.0, 2.0, 2.0, -3.0, -3.0, 2.0):
        owner.factor = factor
        owner.parts[-1] = factor
        assert torch.equal(target(x), compiled(x))
    counted = glowplug.counters()
    assert not counted["refusals"]
    assert counted["stats"]["replays"] >= 3


def test_an_audited_run_may_be_followed() -> None:
    """What a replay has made before it stopped is not from outside."""

    def target(x: torch.Tensor, out: list[float]) -> int:
        best = int(x.argmax())
        print(end="")
        out.append(float(best))
        return best + int(x.sum() > 0)

    compiled = glowplug.compile(target, backend="eager", options={"audit": True})
    for number in range(6):
        x = torch.zeros(3)
        x[number % 3] = 1.0 if number % 2 else -1.0
        expected: list[float] = []
        got: list[float] = []
        assert target(x, expected) == compiled(x, got)
        assert expected == got
    assert not glowplug.counters()["refusals"]
