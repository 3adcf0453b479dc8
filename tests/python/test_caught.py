"""Writes that raise, where the program catches the exception: each call does and catches them."""

import array
import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import glowplug


class Slotted:
    __slots__ = ("other",)


class ReadOnly:
    @property
    def x(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return type(other) is ReadOnly


def fails_after_one() -> Any:
    yield 1
    raise ValueError


def set_item(thing: Any) -> None:
    thing[3] = 4


def del_item(thing: Any) -> None:
    del thing["x"]


def set_attribute(thing: Any) -> None:
    thing.x = 3


def del_attribute(thing: Any) -> None:
    del thing.x


def del_slice(thing: Any) -> None:
    del thing[1:2:"a"]


def set_slice(thing: Any) -> None:
    thing[::2] = [1, 2, 3, 4]


def set_global(thing: Any) -> None:
    global never_set
    del never_set


def set_cell(thing: Any) -> None:
    cell = 1

    def inner() -> None:
        nonlocal cell
        del cell

    inner()
    inner()


class Plain:
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)


def function() -> None: ...


class Checked(Plain):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "x":
            raise TypeError("not x")
        super().__setattr__(name, value)


def add_in_place(thing: Any) -> None:
    thing += 3


Write = Callable[[Any], Any]
WRITES: dict[str, tuple[Write, Any]] = {
    "del object.x": (del_attribute, Plain()),
    "del function.x": (del_attribute, function),
    "del module.x": (del_attribute, nn.Linear(1, 1)),
    "delattr": (lambda t: delattr(t, "x"), Plain()),
    "set.remove": (lambda t: t.remove(1), set()),
    "set.add": (lambda t: t.add([]), set()),
    "set.update": (lambda t: t.update(3), set()),
    "list +=": (add_in_place, []),
    "array.append": (lambda t: t.append("a"), array.array("i")),
    "list.pop": (lambda t: t.pop(), []),
    "list.remove": (lambda t: t.remove(3), []),
    "list.extend": (lambda t: t.extend(3), []),
    "list.insert": (lambda t: t.insert("a", 1), []),
    "list.sort": (lambda t: t.sort(), [1, "a"]),
    "dict.update": (lambda t: t.update([1, 2]), {}),
    "dict.setdefault": (lambda t: t.setdefault([], 1), {}),
    "dict.popitem": (lambda t: t.popitem(), {}),
    "deque.pop": (lambda t: t.pop(), collections.deque()),
    "OrderedDict.move_to_end": (lambda t: t.move_to_end(1), collections.OrderedDict()),
    "list[3]": (set_item, []),
    "del dict[x]": (del_item, {}),
    "dict.pop": (lambda t: t.pop(1), {}),
    "list.extend by a generator": (lambda t: t.extend(fails_after_one()), []),
    "slots": (set_attribute, ReadOnly()),
    "tuple[3]": (set_item, ()),
    "setattr": (lambda t: setattr(t, 3, "x"), Plain()),
    "own __setattr__": (set_attribute, Checked()),
    "int.x": (set_attribute, 3),
    "module's parameter": (lambda t: setattr(t, "weight", 3), nn.Linear(1, 1)),
    "del list[1:2:a]": (del_slice, [1, 2]),
    "list[::2]": (set_slice, [1, 2]),
    "global": (set_global, None),
    "cell": (set_cell, None),
    "str +=": (add_in_place, "a"),
    "tensor[3]": (set_item, torch.ones(2)),
    "Counter.update": (lambda t: t.update(3), collections.Counter()),
}
CASES = [pytest.param(*case, id=name) for name, case in WRITES.items()]


@pytest.mark.parametrize(("write", "thing"), CASES)
def test_a_write_that_raises(write: Write, thing: Any, same: Any) -> None:
    def f(x: torch.Tensor, thing: Any) -> Any:
        y = x + 1
        try:
            write(thing)
        except Exception as error:
            return y * 2, type(error).__name__, str(error)
        return y

    compiled, x = glowplug.compile(f), torch.ones(2)
    for _ in range(3):
        mine, other = copy.deepcopy(thing), copy.deepcopy(thing)
        same(f(x, mine), compiled(x, other))
        assert isinstance(mine, nn.Module) or mine is other or same(mine, other) is None
