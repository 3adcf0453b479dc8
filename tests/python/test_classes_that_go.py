"""Classes come and go, and a class may come to lie where another one was."""

import enum
import gc
from typing import Any

import torch

import glowplug


def pinned_class() -> type:
    class Colour(enum.Enum):
        RED = 1

    return Colour


def plain_class() -> type:
    class Record:
        def __init__(self) -> None:
            self.items: list[int] = []

    return Record


def use_member(x: torch.Tensor, kind: Any) -> tuple[torch.Tensor, Any]:
    return x + 1, kind


def use_instance(x: torch.Tensor, kind: type) -> Any:
    record = kind()
    record.items.append(len(x))
    return record


def test_an_instance_is_made_anew_where_an_enumeration_was() -> None:
    x = torch.ones(2)
    reused = rounds = 0
    while not reused and rounds < 100:
        rounds += 1
        colour = pinned_class()
        glowplug.compile(use_member)(x, colour.RED)
        address = id(colour)
        glowplug.reset()
        del colour
        gc.collect()
        made = [plain_class() for _ in range(8)]
        for kind in made:
            reused += id(kind) == address
            compiled = glowplug.compile(use_instance)
            results = [compiled(x, kind) for _ in range(3)]
            assert [r.items for r in results] == [[2]] * 3
            assert len({id(r) for r in results}) == 3
    assert reused
