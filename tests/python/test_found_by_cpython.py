"""Small programs behind what CPython's own tests gave differently when recorded."""

import array
import decimal
import functools
import io
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug


class Counting(enumerate):
    pass


class Thing:
    pass


def with_lock(x: torch.Tensor) -> Any:
    lock = threading.Lock()
    with lock:
        y = x + 1
    return y, lock.locked()


def with_file(x: torch.Tensor) -> Any:
    with io.StringIO("text") as file:
        text = file.read()
    return x + 1, text


def with_view(x: torch.Tensor) -> Any:
    with memoryview(b"abc") as view:
        found = view.readonly
    return x + 1, found


def held_method(x: torch.Tensor) -> Any:
    split = bytearray(b" a b ").split
    return x + 1, split(None, 1)


def starred_method(x: torch.Tensor) -> Any:
    return x + 1, bytearray(b" a b ").find(*(b"a", 0, 3))


def caught_in_c(x: torch.Tensor) -> Any:
    try:
        return bytearray(b"abc").index(b"z")
    except ValueError as error:
        return x + 1, str(error)


def cached(x: torch.Tensor) -> Any:
    twice = functools.lru_cache(lambda n: n * 2)
    return x + 1, [twice(n % 3) for n in range(9)], tuple(twice.cache_info())


def advanced(x: torch.Tensor) -> Any:
    it = pickle.loads(pickle.dumps(Counting("abc")))
    next(it)
    return x + 1, list(pickle.loads(pickle.dumps(it)))


def dies(x: torch.Tensor) -> Any:
    thing = Thing()
    reference = weakref.ref(thing)
    del thing
    return x + 1, reference() is None


def filled_by_exec(x: torch.Tensor) -> Any:
    names: dict[str, Any] = {}
    exec("def f():\n yield 1", names)
    return x + 1, list(names["f"]())


def raised_in_generator(x: torch.Tensor) -> Any:
    def generate() -> Any:
        try:
            raise KeyError("mine")
        except KeyError:
            yield sys.exc_info()[0]

    return x + 1, list(generate())


def rounds_as_it_says(x: torch.Tensor) -> Any:
    found = []
    for way in (decimal.ROUND_CEILING, decimal.ROUND_FLOOR):
        with decimal.localcontext() as context:
            context.rounding = way
            setattr(context, "prec", 20)
            found.append(int(decimal.Decimal("2.5").quantize(decimal.Decimal(1))))
    return x + 1, found


LOCAL = threading.local()


class Local(threading.local):
    pass


OWN = Local()


def writes_what_is_the_threads(x: torch.Tensor) -> Any:
    before = getattr(LOCAL, "n", None), getattr(OWN, "n", None)
    LOCAL.n = OWN.n = 5
    found = before, LOCAL.n, OWN.n
    del LOCAL.n
    del OWN.n
    return x + 1, found


PROGRAMS: list[Callable[..., Any]] = [
    with_lock,
    with_file,
    with_view,
    held_method,
    starred_method,
    caught_in_c,
    rounds_as_it_says,
    writes_what_is_the_threads,
    cached,
    advanced,
    dies,
    filled_by_exec,
    raised_in_generator,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_eager(program: Callable[..., Any], same: Any) -> None:
    compiled, x = glowplug.compile(program), torch.ones(2)
    for _ in range(3):
        same(program(x), compiled(x))


def test_a_plan_is_built_in_linear_time() -> None:
    def reverse(x: torch.Tensor, items: Any) -> torch.Tensor:
        for i in range(len(items) // 2):
            items[i], items[-1 - i] = items[-1 - i], items[i]
        return x + 1

    took = []
    for size in (100, 600):
        start = time.process_time()
        glowplug.compile(reverse)(torch.ones(2), array.array("i", range(size)))
        took.append(time.process_time() - start)
    assert took[1] < 0.5 or took[1] < 20 * took[0]


MANY_CALLS = """
import json, torch, glowplug
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
@glowplug.compile
def f(x):
    for i in range(6000):
        last = json.loads(str(i))
    return x + 1, last
x = torch.ones(2)
f(x)
glowplug.reset()
before = resident()
assert f(x)[1] == 5999 and f(x)[1] == 5999
assert glowplug.counters()["stats"]["replays"] == 1
print((resident() - before) >> 20)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="asks Linux")
def test_memory_of_a_plan_with_many_calls() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY_CALLS], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100  # megabytes; 500 where it grows with the square


DEEP = """
import torch, glowplug
@glowplug.compile
def f(x):
    nested = []
    for _ in range(100000):
        nested = [nested]
    return x + 1, nested
f(torch.ones(2)), f(torch.ones(2))
"""


def test_deeply_nested_lists() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
