"""Subclasses of the built-in containers: what is read from them is noticed when it changes."""

import collections
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug


class Missing(dict):
    def __missing__(self, key: str) -> str:
        return key + "!"


class Plain(dict):
    pass


class Ordered(collections.OrderedDict):
    pass


class Default(collections.defaultdict):
    pass


class User(collections.UserDict):
    pass


class Items(list):
    pass


class Queue(collections.deque):
    pass


def set_a(container: Any) -> None:
    container["a"] = 7


def set_first(container: Any) -> None:
    container[0] = 7


def add_b(container: Any) -> None:
    container.update(b=3)


Case = tuple[Callable[[Any], Any], Any, Callable[[Any], Any]]
CASES: dict[str, Case] = {
    "missing key": (operator.itemgetter("b"), Missing(a=1), add_b),
    "key of a dict with __missing__": (lambda d: d["a"], Missing(a=1), set_a),
    "key of a dict": (lambda d: d["a"], Plain(a=1), set_a),
    "key of an OrderedDict": (lambda d: d["a"], Ordered(a=1), set_a),
    "key of a defaultdict": (lambda d: d["a"], Default(int, a=1), set_a),
    "key of a UserDict": (lambda d: d["a"], User(a=1), set_a),
    "item of a list": (lambda items: items[0], Items([1, 2]), set_first),
    "last of a list": (lambda items: items[-1], Items([1, 2]), lambda items: items.append(9)),
    "slice of a list": (lambda items: items[:1], Items([1, 2]), set_first),
    "member of a list": (lambda items: 7 in items, Items([1, 2]), set_first),
    "items of a list": (lambda items: [i + 1 for i in items], Items([1, 2]), set_first),
    "item of a deque": (lambda items: items[0], Queue([1, 2]), set_first),
    "member of a deque": (lambda items: 7 in items, Queue([1, 2]), set_first),
    "member of a dict": (lambda d: "b" in d, Plain(a=1), add_b),
    "length of a dict": (len, Plain(a=1), add_b),
    "keys of a dict": (list, Plain(a=1), add_b),
    "__getitem__ of a dict": (lambda d: d.__getitem__("a"), Plain(a=1), set_a),
    "__getitem__ of a list": (lambda items: items.__getitem__(0), Items([1, 2]), set_first),
    "dict.__getitem__": (lambda d: dict.__getitem__(d, "a"), Plain(a=1), set_a),
    "super().__getitem__": (lambda d: super(Plain, d).__getitem__("a"), Plain(a=1), set_a),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_change_is_noticed(name: str, same: Any) -> None:
    read, container, change = CASES[name]

    def f(x: torch.Tensor) -> Any:
        return x + 1, read(container)

    compiled, x = glowplug.compile(f), torch.ones(2)
    for _ in range(2):
        same(f(x), compiled(x))
    change(container)
    for _ in range(2):
        same(f(x), compiled(x))
