"""What calls have given ends when the program lets go of it, where somebody can see that."""

import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glowplug

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

Program = Callable[[torch.Tensor, Path], Any]


class Told:
    """Tells of its end."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __del__(self) -> None:
        self.log.append("ended")


class Thing:
    pass


@glowplug.disable
def made_outside(log: list[str]) -> Told:
    return Told(log)


@glowplug.disable
def looked_at(told: Told) -> int:
    return len(told.log)


def written_and_dropped(x: torch.Tensor, path: Path) -> Any:
    open(path, "w").write("all of it")
    return open(path).read(), x * 2


def bound_and_dropped(x: torch.Tensor, path: Path) -> Any:
    file = open(path, "w")
    file.write("all of it")
    file = None
    return os.stat(path).st_size, x * 2


def in_a_tuple(x: torch.Tensor, path: Path) -> Any:
    pair = (open(path, "w"), 1)
    pair[0].write("all of it")
    del pair
    return os.stat(path).st_size, x * 2


def of_a_class_with_a_finalizer(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    told = made_outside(log)
    del told
    log.append("after")
    path.write_text("")
    return log, x * 2


def given_to_a_call(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    told = Told(log)
    looked_at(told)
    del told
    log.append("after")
    path.write_text("")
    return log, x * 2


def seen_by_a_weak_reference(x: torch.Tensor, path: Path) -> Any:
    view = memoryview(b"abc")
    reference = weakref.ref(view)
    del view
    return reference() is None, x * 2


def an_exported_buffer(x: torch.Tensor, path: Path) -> Any:
    content = bytearray(b"abc")
    view = memoryview(content)
    del view
    content.append(1)
    return bytes(content), x * 2


def on_a_tensor(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    y = x * 2
    y.owner = Told(log)  # type: ignore[attr-defined]
    y = y + 1
    log.append("after")
    path.write_text("")
    return log, y


def inside_of_what_a_tensor_has(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    y = x * 2
    y.owner = {"told": [Told(log)]}  # type: ignore[attr-defined]
    y = y + 1
    count = 0
    for _ in log:
        count += 1
    return log, count, y


KEPT: list[Any] = []


def stored_and_taken_away(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    KEPT.append(Told(log))
    KEPT.pop()
    ended = bool(log)
    return ended, log, x * 2


def stored_and_overwritten(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    KEPT[:] = [Told(log)]
    KEPT[0] = None
    log.append("after")
    path.write_text("")
    return log, x * 2


def watched_on_a_tensor(x: torch.Tensor, path: Path) -> Any:
    log: list[str] = []
    y = x * 2
    thing = Thing()
    y.owner = thing  # type: ignore[attr-defined]
    reference = weakref.ref(thing, lambda _: log.append("ended"))
    del thing
    y = y + 1
    return log + ["after"], reference() is None, y


SEEN = [
    on_a_tensor,
    inside_of_what_a_tensor_has,
    stored_and_taken_away,
    stored_and_overwritten,
    watched_on_a_tensor,
    written_and_dropped,
    bound_and_dropped,
    in_a_tuple,
    of_a_class_with_a_finalizer,
    given_to_a_call,
    seen_by_a_weak_reference,
    an_exported_buffer,
]


@pytest.mark.parametrize("program", SEEN)
def test_as_eager(program: Program, tmp_path: Path, same: Any) -> None:
    compiled = glowplug.compile(program)
    for n in (3, 3, 3, 4):
        x = torch.randn(n)
        expected = program(x, tmp_path / "eager")
        same(expected, compiled(x, tmp_path / "compiled"))


def closed(x: torch.Tensor, path: Path) -> Any:
    with open(path, "w") as file:
        file.write("all of it")
    file = None
    return open(path).read(), x * 2


def arrays(x: torch.Tensor, path: Path) -> Any:
    array = np.ones(3)
    array = array + 1
    array = None
    path.write_text("")
    return x * 2


@pytest.mark.parametrize("program", [closed, arrays])
def test_an_end_that_nobody_sees_costs_nothing(program: Program, tmp_path: Path, same: Any) -> None:
    compiled = glowplug.compile(program)
    for _ in range(3):
        x = torch.randn(3)
        same(program(x, tmp_path / "eager"), compiled(x, tmp_path / "compiled"))
    stats = glowplug.counters()["stats"]
    assert (stats["recordings"], stats["replays"], stats["eager_calls"]) == (1, 2, 0)


def test_it_is_counted_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = glowplug.compile(bound_and_dropped)
    for _ in range(3):
        compiled(torch.ones(2), tmp_path / "file")
    assert glowplug.counters()["refusals"] == {"ended_result": 1}
    assert "its end may be seen" in caplog.text


def counts_garbage(x: torch.Tensor, path: Path) -> Any:
    cycle: list[Any] = [x * 2]
    cycle.append(cycle)
    gc.collect()
    del cycle
    return x + 1, gc.collect()


def decides_by_garbage(x: torch.Tensor, path: Path) -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    del cycle
    return x + 1 if gc.collect() > 0 else x - 1


@pytest.mark.parametrize("program", [counts_garbage, decides_by_garbage])
def test_garbage_is_counted_as_in_eager(program: Program, tmp_path: Path, same: Any) -> None:
    compiled = glowplug.compile(program)
    for _ in range(4):
        x = torch.randn(3)
        gc.collect()
        expected = program(x, tmp_path)
        gc.collect()
        same(expected, compiled(x, tmp_path))
    assert glowplug.counters()["stats"].get("replays", 0) == 0


def test_collecting_garbage_stays_in_the_graph() -> None:
    @glowplug.compile
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        gc.collect()
        return y + 1

    for _ in range(3):
        assert torch.equal(program(torch.ones(3)), torch.full((3,), 3.0))
    assert glowplug.counters()["stats"]["replays"] == 2
    assert not glowplug.counters()["graph_break"]
