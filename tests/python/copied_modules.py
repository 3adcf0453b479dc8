"""Modules and helpers for tests that run one program on plain and on compiled things."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

import glowplug

T = TypeVar("T")


class Net(nn.Module):
    """A linear layer and a counter of its own."""

    made = 0

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.lin = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.norm(self.lin(x)).relu()

    def fresh(self) -> "Net":
        return type(self)(self.width)

    def blank(self) -> "Net":
        made = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self).__dict__)
        return made

    def count(self) -> int:
        type(self).made += 1
        return Net.made

    def same_kind(self, other: object) -> bool:
        return type(other) == type(self) and isinstance(other, type(self))  # noqa: E721


class Holder(nn.Module):
    """Has Net as a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Net()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x))


def hold(wrap: Callable[[Any], Any]) -> Holder:
    """A Holder whose layer went through `wrap`."""
    made = Holder()
    made.layer = wrap(made.layer)
    return made


def plain(thing: T) -> T:
    return thing


def twice(program: Callable[[Callable[[Any], Any]], Any], same: Any) -> None:
    """`program` gives the same with plain and with compiled things."""
    outcomes = []
    for wrap in (plain, glowplug.compile):
        torch.manual_seed(7)
        Net.made = 0
        outcomes.append(program(wrap))
    same(*outcomes)
