"""What the tests of programs with changing surroundings share.

A program gets `compile` and gives a step function. What its steps return under the identity is
eager's answer; compiled, they must return the same. State lives inside the program, so it is
compared too.
"""

import collections
import math
import os
import random
from collections.abc import Callable
from typing import Any

import torch

Program = Callable[[Callable[[Any], Any]], Callable[[int], Any]]


def X(*sizes):
    """The same random numbers each time; float32 of the given sizes."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(3))


def flat(o):
    """Plain values that compare by content, types included."""
    if isinstance(o, torch.Tensor):
        return ("tensor", str(o.dtype), tuple(o.shape), o.detach().tolist(), o.requires_grad)
    if isinstance(o, dict):
        return [type(o).__name__, *[(flat(k), flat(v)) for k, v in o.items()]]
    if isinstance(o, (list, tuple, collections.deque)):
        return [type(o).__name__, *[flat(v) for v in o]]
    if isinstance(o, (set, frozenset)):
        return [type(o).__name__, *sorted(map(repr, o))]
    if callable(o):
        return "callable"
    return [type(o).__name__, flat(vars(o))] if hasattr(o, "__dict__") else repr(o)


def observe(program: Program, compile: Callable[[Any], Any], steps: int) -> list[Any]:
    torch.manual_seed(0)
    random.seed(0)
    step = program(compile)
    return [flat(step(i)) for i in range(steps)]


def alike(found: Any, expected: Any) -> bool:
    """Equal; where kernels may be at work, numbers of tensors are as close as theirs are."""
    if isinstance(expected, float) and os.environ.get("GLOWPLUG_NATIVE", "0") not in ("", "0"):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-5) or found == expected
    if isinstance(expected, (list, tuple)) and type(found) is type(expected):
        return len(found) == len(expected) and all(map(alike, found, expected))
    return found == expected


def assert_observed(program: Program, compile: Callable[[Any], Any], steps: int) -> None:
    found, expected = observe(program, compile, steps), observe(program, lambda f: f, steps)
    assert alike(found, expected), (found, expected)
