"""The comparison notices every sort of wrong compilation; else it would prove nothing."""

import contextlib
import io
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from .compare import Difference, first_difference
from .generator import program
from .run import LOGGER, observe
from .shrink import shrink
from .workers import outcomes

PROGRAM = """
class Box:
    pass
BOX = Box()
BOX.n = 0
ITEMS = []
def target(x, y):
    BOX.n += 1
    ITEMS.append(y)
    print('seen', BOX.n)
    LOG.warning('logged')
    warnings.warn('warned')
    noise = torch.rand(1)
    z = x * 2
    if y == 3:
        raise ValueError('three')
    return z, z.t(), [z, x], y, noise, x.expand(2, 2, 2)
def calls():
    for y in (1, 2, 3):
        yield (T(y, 2, 2, grad=True), y), dict()
"""
Target = Callable[..., Any]


def other_value(f: Target) -> Target:
    def wrong(*args: Any) -> Any:
        z, *rest = f(*args)
        return z + 1e-6, *rest

    return wrong


def change(edit: Callable[[Any], Any]) -> Callable[[Target], Target]:
    return lambda f: lambda *args: edit(f(*args))


def swapped(edit: Callable[[list[Any]], None]) -> Callable[[Target], Target]:
    def changed(result: Any) -> Any:
        as_list = list(result)
        edit(as_list)
        return tuple(as_list)

    return change(changed)


def put(index: int, make: Callable[[list[Any]], Any]) -> Callable[[Target], Target]:
    def edit(result: list[Any]) -> None:
        result[index] = make(result)

    return swapped(edit)


def around(before: Callable[[], Any], after: Callable[[Any], Any]) -> Callable[[Target], Target]:
    """A target that is run between two disturbances of what surrounds it."""

    def make(f: Target) -> Target:
        def wrong(*args: Any) -> Any:
            kept = before()
            try:
                return f(*args)
            finally:
                after(kept)

        return wrong

    return make


def undo_state(f: Target) -> Target:
    def wrong(*args: Any) -> Any:
        try:
            return f(*args)
        finally:
            f.__globals__["BOX"].n = 0

    return wrong


def no_append(f: Target) -> Target:
    def wrong(*args: Any) -> Any:
        try:
            return f(*args)
        finally:
            f.__globals__["ITEMS"].pop()

    return wrong


def silent(f: Target) -> Target:
    def wrong(*args: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return f(*args)

    return wrong


def other_error(f: Target) -> Target:
    def wrong(*args: Any) -> Any:
        try:
            return f(*args)
        except ValueError as error:
            raise type(error)("four") from None

    return wrong


def swallowed(f: Target) -> Target:
    def wrong(*args: Any) -> Any:
        with contextlib.suppress(ValueError):
            return f(*args)

    return wrong


def touches_input(f: Target) -> Target:
    def wrong(x: torch.Tensor, y: int) -> Any:
        result = f(x, y)
        with torch.no_grad():
            x[0, 0] += 1
        return result

    return wrong


WRONG: dict[str, tuple[Callable[[Target], Target], str]] = {
    "value": (other_value, "result"),
    "negative zero": (put(4, lambda r: r[4] * -0.0), "result"),
    "dtype": (put(4, lambda r: r[4].double()), "result"),
    "stride": (put(1, lambda r: r[1].contiguous()), "result"),
    "expanded": (put(5, lambda r: r[5].contiguous()), "result"),
    "view": (put(1, lambda r: r[0].clone().t()), "result"),
    "identity": (put(2, lambda r: [r[0][:], r[2][1]]), "result"),
    "input identity": (put(2, lambda r: [r[0], r[2][1].detach()]), "result"),
    "gradient": (put(0, lambda r: r[0].detach()), "result"),
    "type": (put(2, tuple), "result"),
    "int for bool": (put(3, lambda r: r[3] == 1), "result"),
    "length": (change(lambda r: r[:-1]), "result"),
    "attribute": (undo_state, "state"),
    "append": (no_append, "state"),
    "print": (silent, "output"),
    "log": (around(lambda: LOGGER.setLevel(50), lambda _: LOGGER.setLevel(0)), "log"),
    "random": (around(torch.get_rng_state, torch.set_rng_state), "random state"),
    "python random": (around(random.random, lambda _: None), "random state"),
    "message": (other_error, "exception"),
    "no exception": (swallowed, "exception"),
    "input": (touches_input, "arguments"),
    "grad mode": (around(lambda: None, lambda _: torch.set_grad_enabled(False)), "grad mode"),
}


def difference(compile_: Callable[[Target], Target]) -> Difference | None:
    return first_difference(observe(PROGRAM, lambda f: f), observe(PROGRAM, compile_))


def test_same_is_equal() -> None:
    assert difference(lambda f: f) is None


@pytest.mark.parametrize("name", WRONG)
def test_wrong_is_noticed(name: str) -> None:
    wrong, kind = WRONG[name]
    found = difference(wrong)
    assert found is not None and found.kind == kind


def test_warning_is_noticed() -> None:
    quiet = PROGRAM.replace("    warnings.warn('warned')\n", "")
    found = first_difference(observe(PROGRAM, lambda f: f), observe(quiet, lambda f: f))
    assert found is not None and found.kind == "warnings"


def test_a_seed_is_a_program() -> None:
    assert program(12) == program(12) != program(13)


def test_shrinks_to_what_fails() -> None:
    small = shrink(PROGRAM, lambda text: "ITEMS.append" in text and "yield" in text)
    assert len(small.splitlines()) <= 6 and "ITEMS.append" in small


def test_a_crash_is_a_failure() -> None:
    crash = PROGRAM.replace("    for y", "    import os\n    os.kill(os.getpid(), 9)\n    for y")
    found = list(outcomes([PROGRAM, crash, PROGRAM], [False] * 3))
    assert len(found) == 2 and found[0].difference is None
    assert found[1].difference is not None and found[1].difference.compiled == "SIGKILL"
