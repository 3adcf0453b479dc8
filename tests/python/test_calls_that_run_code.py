"""Calls that keep to themselves (numpy, json, print, logging) and are handed code of the program's.

Whatever that code changes is read after the call as it is then, at the recording and at each
replay, also where it runs in some calls only.
"""

import collections
import contextlib
import copy
import dataclasses
import io
import json
import logging
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import glowplug

Program = Callable[[torch.Tensor, "State"], Any]


class State:
    """What programs read and write outside of the call."""

    def __init__(self) -> None:
        self.n = 0
        self.log: list[Any] = []
        self.logger = logging.Logger("of the program")

    def count(self) -> None:
        """What returns to an earlier value is found again without recording."""
        self.n = (self.n + 1) % 2


class Number:
    """Counts how often it is asked for its value, as a number and as text."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __float__(self) -> float:
        self.state.count()
        return float(self.state.n)

    def __str__(self) -> str:
        self.state.count()
        return f"number {self.state.n}"


class Rows:
    def __init__(self, state: State) -> None:
        self.state = state

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.state.count()
        return np.full(3, self.state.n)


class Handler(logging.Handler):
    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state

    def emit(self, record: logging.LogRecord) -> None:
        self.state.count()
        self.state.log.append(record.getMessage())


class Sink(io.StringIO):
    seen = 0

    def write(self, text: str) -> int:
        Sink.seen = len(text)
        return super().write(text)


class Slotted:
    __slots__ = ("n", "text")

    def __init__(self) -> None:
        self.n = 0

    def __float__(self) -> float:
        self.n += 1
        self.text = f"asked {self.n}"
        return 1.0


@dataclasses.dataclass
class Point:
    state: State
    x: float = 1.0

    def __getstate__(self) -> dict[str, Any]:
        self.state.count()
        return {"state": None, "x": self.x}


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def along_an_axis(x: torch.Tensor, state: State) -> Any:
    def norm(row: Any) -> Any:
        state.count()
        return row.sum() + state.n

    made = np.apply_along_axis(norm, 0, np.ones((2, 3)))
    return branch(x) * state.n, made.tolist()


def from_a_function(x: torch.Tensor, state: State) -> Any:
    def bump(a: Any) -> Any:
        state.count()
        return a + 1

    made = np.frompyfunc(bump, 1, 1)(np.arange(3))
    return branch(x) * state.n, list(made)


def counts_in_a_cell(x: torch.Tensor, state: State) -> Any:
    count = 0

    def bump(row: Any) -> Any:
        nonlocal count
        count += 1
        return row.sum()

    np.apply_along_axis(bump, 0, np.ones((2, 3)))
    return branch(x) * count, count


def appends_to_its_own(x: torch.Tensor, state: State) -> Any:
    inner: dict[str, int] = {}
    seen: list[Any] = [inner]
    order = collections.deque([0], maxlen=5)
    slotted = Slotted()

    def look(row: Any) -> Any:
        seen.append(len(seen))
        order.append(len(seen))
        inner["looked"] = len(seen)
        return float(slotted)

    np.apply_along_axis(look, 0, np.ones((2, 3)))
    y = branch(x)
    return y, seen, seen[0] is inner, order, slotted.n, slotted.text


def raises_after_a_change(x: torch.Tensor, state: State) -> Any:
    seen: list[int] = []

    def look(row: Any) -> Any:
        seen.append(len(seen))
        if state.n > 0 and len(seen) == 2:
            raise KeyError("look")
        return row.sum()

    y = x * 2
    try:
        np.apply_along_axis(look, 0, np.ones((2, 3)))
    except KeyError:
        y = y + 1
    state.count()
    return branch(y), seen


def as_an_array(x: torch.Tensor, state: State) -> Any:
    rows = np.asarray(Rows(state))
    return branch(x) * state.n, rows.tolist()


def as_a_number(x: torch.Tensor, state: State) -> Any:
    made = np.array([Number(state), Number(state)], dtype=float)
    return branch(x) * state.n, made.tolist()


def to_json(x: torch.Tensor, state: State) -> Any:
    def default(value: Any) -> Any:
        state.count()
        return f"set of {len(value)}"

    text = json.dumps({"a": {1, 2}, "b": [1.5]}, default=default)
    return branch(x) * state.n, text


def pickled(x: torch.Tensor, state: State) -> Any:
    data = pickle.dumps(Point(state))
    return branch(x) * state.n, len(data) > 0


def copied(x: torch.Tensor, state: State) -> Any:
    point = copy.copy(Point(state, 2.0))
    return branch(x) * state.n, point.x


def printed(x: torch.Tensor, state: State) -> Any:
    print(Number(state))
    print("a", Number(state), [1])
    return branch(x) * state.n


def printed_into_one(x: torch.Tensor, state: State) -> Any:
    sink = Sink()
    print("text", file=sink)
    return branch(x), Sink.seen, sink.getvalue()


def logged(x: torch.Tensor, state: State) -> Any:
    if not state.logger.handlers:
        state.logger.addHandler(Handler(state))
    y = x * (state.n + 1)
    state.logger.warning("value %s", state.n)
    return branch(y) * state.n


def logged_by_some(x: torch.Tensor, state: State) -> Any:
    state.logger.warning("value %d", state.n)
    return branch(x) * (state.n + 1)


def logged_text(x: torch.Tensor, state: State) -> Any:
    if not state.logger.handlers:
        state.logger.addHandler(logging.StreamHandler(io.StringIO()))
    state.logger.error("value %s", Number(state))
    return branch(x) * state.n


PROGRAMS: list[Program] = [
    along_an_axis,
    from_a_function,
    counts_in_a_cell,
    appends_to_its_own,
    raises_after_a_change,
    as_an_array,
    as_a_number,
    to_json,
    pickled,
    copied,
    printed,
    printed_into_one,
    logged,
    logged_by_some,
    logged_text,
]

# Of the sum's sign, so that replays take the branch that was recorded, and the other one.
SIGNS = (1, 1, -1, 1, -1, -1, 1, 1)


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list | collections.deque):
        return type(value)(plain(item) for item in value)
    return value


def run(function: Program, between: Callable[[int, State], None]) -> tuple[list[Any], list[Any]]:
    """What the calls give, and what is outside after each."""
    state = State()
    results, outside = [], []
    for number, sign in enumerate(SIGNS):
        between(number, state)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            results.append(plain(function(torch.full((3,), float(sign)), state)))
        outside.append((state.n, list(state.log), out.getvalue()))
    return results, outside


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_their_code_changes_is_read_as_it_is_then(program: Program) -> None:
    def between(number: int, state: State) -> None:
        if program is logged_by_some and number == 3:
            state.logger.addHandler(Handler(state))
        if program is logged_by_some and number == 6:
            state.logger.handlers.clear()

    expected = run(program, between)
    Sink.seen = 0
    assert run(glowplug.compile(program), between) == expected
    assert glowplug.counters()["stats"]["replays"] > 0


def test_a_print_of_ones_own_text_stays_in_the_graph() -> None:
    def program(x: torch.Tensor, state: State) -> torch.Tensor:
        y = x * 2
        print(Number(state))
        return y + state.n

    expected = run(program, lambda number, state: None)
    assert run(glowplug.compile(program), lambda number, state: None) == expected
    assert not glowplug.counters()["graph_break"]


def test_the_break_is_counted_with_its_reason() -> None:
    state = State()
    state.logger.addHandler(Handler(state))
    x = torch.ones(3)

    @glowplug.compile
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        state.logger.warning("half")
        return y + state.n

    for n in (1, 0, 1, 0, 1, 0):
        assert torch.equal(program(x), x * 2 + n)
    # One recording for each number that is found after the call.
    assert glowplug.counters()["graph_break"] == {"known_call_ran_code": 2}
    assert glowplug.counters()["stats"]["recordings"] == 2
    assert glowplug.counters()["stats"]["replays"] == 4


def test_quiet_handlers_and_numbers_of_numpy_keep_the_graph_whole() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.d = 4
            self.eps = np.float32(0.5)
            self.logger = logging.Logger("of the module")
            self.logger.addHandler(logging.StreamHandler(io.StringIO()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x / float(np.sqrt(self.d))
            self.logger.warning("scaled by %d", self.d)
            return y + float(np.maximum(self.eps, 0.25))

    module = Scaled()
    compiled = glowplug.compile(Scaled())
    x = torch.randn(3)
    for _ in range(3):
        assert torch.equal(compiled(x), module(x))
    assert glowplug.counters()["stats"]["unique_graphs"] == 1
    assert not glowplug.counters()["graph_break"]
