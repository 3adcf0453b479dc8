"""Objects made in the call that something out of sight keeps are the program's own.

The programs have branches, so that replays stop behind the call that keeps and are followed.
"""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug


class Thing:
    def method(self) -> None:
        pass


class Reference(weakref.ref[Any]):
    pass


KEPT: list[Any] = []
BY_NAME: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
BY_KEY: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
THINGS: weakref.WeakSet[Any] = weakref.WeakSet()


@glowplug.disable
def keep(thing: Any) -> None:
    KEPT[:] = [thing]


@glowplug.disable
def keep_inside(things: list[Any]) -> int:
    KEPT[:] = things
    return len(things)


@glowplug.disable
def hand_back(thing: Any) -> Any:
    return thing


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def a_reference(x: torch.Tensor) -> Any:
    thing = Thing()
    reference = Reference(thing)
    y = branch(x)
    return y, reference() is thing, thing, reference


def a_weak_method(x: torch.Tensor) -> Any:
    thing = Thing()
    reference = weakref.WeakMethod(thing.method)
    y = branch(x)
    found = reference()
    return y, found is not None and found.__self__ is thing, weakref.getweakrefcount(thing)


def in_a_dictionary(x: torch.Tensor) -> Any:
    BY_NAME["thing"] = thing = Thing()
    y = branch(x)
    return y, BY_NAME.get("thing") is thing, thing


def as_a_key(x: torch.Tensor) -> Any:
    thing = Thing()
    BY_KEY[thing] = 1
    y = branch(x)
    return y, thing in BY_KEY, len(BY_KEY)


def in_a_set(x: torch.Tensor) -> Any:
    thing = Thing()
    THINGS.add(thing)
    y = branch(x)
    return y, thing in THINGS, len(THINGS)


def by_a_function(x: torch.Tensor) -> Any:
    thing = Thing()
    keep(thing)
    y = branch(x)
    return y, KEPT[0] is thing, thing


def inside_of_an_argument(x: torch.Tensor) -> Any:
    things = [Thing(), Thing()]
    count = keep_inside(things)
    y = branch(x)
    return y, count, [kept is thing for kept, thing in zip(KEPT, things, strict=True)]


def handed_back(x: torch.Tensor) -> Any:
    thing = Thing()
    same = hand_back(thing)
    y = branch(x)
    return y, same is thing


def found_later(x: torch.Tensor) -> Any:
    thing = Thing()
    keep(thing)
    return branch(x), thing


PROGRAMS = [
    a_reference,
    a_weak_method,
    in_a_dictionary,
    as_a_key,
    in_a_set,
    by_a_function,
    inside_of_an_argument,
    handed_back,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: Callable[..., Any], same: Any) -> None:
    compiled = glowplug.compile(program)
    for value in (1.0, 1.0, -1.0, 1.0, -1.0, -1.0):
        x = torch.full((2,), value)
        expected, got = program(x)[:3], compiled(x)[:3]
        same(expected[:2], got[:2])
        if isinstance(expected[-1], int):
            assert expected[-1] == got[-1]


def test_what_is_kept_is_what_the_call_gives() -> None:
    compiled = glowplug.compile(found_later)
    for value in (1.0, 1.0, -1.0, 1.0, -1.0, -1.0):
        assert compiled(torch.full((2,), value))[1] is KEPT[0]
    assert glowplug.counters()["refusals"] == {"kept_by_call": 1}


def test_what_is_only_looked_at_costs_nothing(same: Any) -> None:
    @glowplug.disable
    def look(things: list[int]) -> int:
        return len(things)

    def program(x: torch.Tensor) -> Any:
        things = [1, 2]
        count = look(things)
        return branch(x), count, things

    compiled = glowplug.compile(program)
    for value in (1.0, 1.0, -1.0, 1.0, -1.0):
        x = torch.full((2,), value)
        same(program(x), compiled(x))
    assert not glowplug.counters()["refusals"]
    assert glowplug.counters()["stats"]["replays"] > 0
