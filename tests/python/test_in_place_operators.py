"""`a += b` and the like on objects of classes in C change the object, as in eager."""

import array
from typing import Any

import numpy as np
import pytest
import torch

import glowplug

OPERATORS = ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "@="]
BITS = ["<<=", ">>=", "&=", "|=", "^="]


def program(text: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(
        f"def f(x, a, b):\n    kept = a\n    a {text} b\n    return a, kept, a is kept, x * 2\n",
        namespace,
    )
    return namespace["f"]


def outcome(f: Any, make: Any) -> Any:
    a, b = make()
    result = f(torch.ones(2), a, b)
    return str(result[:3]), result[0] is a, result[3].tolist(), str(a)


@pytest.mark.parametrize("text", OPERATORS + BITS)
@pytest.mark.parametrize("inside", [False, True])
def test_arrays_of_numpy(text: str, inside: bool) -> None:
    def make() -> Any:
        if text in BITS:
            return np.array([[6, 2], [3, 9]]), np.array([[1, 2], [3, 1]])
        return np.array([[6.0, 2.0], [3.0, 9.0]]), np.array([[1.0, 2.0], [3.0, 1.0]])

    f = program(text)
    if inside:
        inner = f

        def f(x: torch.Tensor, a: Any, b: Any) -> Any:
            return inner(x, a.copy(), b)

    compiled = glowplug.compile(f)
    for _ in range(3):
        assert outcome(compiled, make) == outcome(f, make)
    assert glowplug.counters()["stats"]["replays"] == 2


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("+=", lambda: (bytearray(b"abc"), b"def")),
        ("*=", lambda: (bytearray(b"abc"), 3)),
        ("+=", lambda: (array.array("i", [1, 2]), array.array("i", [3]))),
        ("*=", lambda: (array.array("i", [1, 2]), 2)),
    ],
)
def test_other_classes(text: str, make: Any) -> None:
    f = program(text)
    compiled = glowplug.compile(f)
    for _ in range(3):
        assert outcome(compiled, make) == outcome(f, make)
