"""Frames that cannot be recorded run as they are; what they call is compiled by itself."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn as nn

import glowplug
from conftest import NATIVE
from glowplug._twin import entry_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.inner(x)) * self.scale


class Net(nn.Module):
    """Its frame leaves a generator behind, which no replay can make."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Iterator[str]]:
        for block in self.blocks:
            x = block(x)
        return x, (letter for letter in "ab")


def stats() -> dict[str, int]:
    return glowplug.counters()["stats"]


def eager(fn: Any, **options: Any) -> Any:
    return glowplug.compile(fn, backend="eager", options=options)


def call(compiled: Any, model: Any, x: torch.Tensor, times: int = 6) -> None:
    for _ in range(times):
        assert torch.equal(compiled(x)[0], model(x)[0])


def test_modules_that_an_eager_frame_calls_are_compiled() -> None:
    model, x = Net(), torch.randn(2, 4)
    compiled = eager(model)
    call(compiled, model, x)
    assert stats()["callee_entries"] == 3
    assert stats()["replays"] >= 3
    described = entry_of(compiled).describe()
    assert [callee["name"] for callee in described["callees"]] == ["Block"] * 3


def test_their_guards_hold_for_them_alone() -> None:
    model, x = Net(), torch.randn(2, 4)
    compiled = eager(model)
    call(compiled, model, x)
    model.blocks[1].scale = 3.0
    call(compiled, model, x, 3)
    model.blocks[2].inner.weight.data.add_(1)
    call(compiled, model, x, 3)
    model.blocks[0] = Block()
    call(compiled, model, x, 3)
    model.blocks[0].register_forward_hook(lambda module, args, output: output * 2)
    call(compiled, model, x, 3)
    model.train(False)
    call(compiled, model, torch.randn(5, 4), 3)


def test_gradients_through_them() -> None:
    model, x = Net(), torch.randn(2, 4)
    compiled = eager(model)
    call(compiled, model, x)
    model(x)[0].sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    compiled(x)[0].sum().backward()
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        assert grad is not None and torch.equal(parameter.grad, grad)


def test_modules_die_when_eager_would_let_them_die() -> None:
    model = Net()
    compiled = eager(model)
    call(compiled, model, torch.randn(2, 4))
    gone = weakref.ref(model.blocks[0])
    model.blocks[0] = Block()
    gc.collect()
    assert gone() is None


def step(x: torch.Tensor, factor: float) -> torch.Tensor:
    return (x * factor).abs() + 0.5


def loop(x: torch.Tensor, factor: float = 1.5) -> tuple[torch.Tensor, int]:
    count = 0
    while x.sum() < 50:
        x = step(x, factor)
        count += 1
    return x, count


def test_loops_over_data_have_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    compiled = eager(loop, max_forks=3)
    with caplog.at_level(logging.WARNING, "glowplug"):
        for start in range(8):
            x = torch.full((2,), float(start))
            expected, got = loop(x), compiled(x)
            assert torch.equal(expected[0], got[0])
            assert expected[1] == got[1]
    assert glowplug.counters()["refusals"] == {"too_many_forks": 1}
    line = loop.__code__.co_firstlineno + 2
    said = [r.getMessage() for r in caplog.records if "stays eager" in r.getMessage()]
    assert len(said) == 1
    assert f"{__file__}:{line}: " in said[0]
    assert "in one call; max_forks is 3" in said[0]
    assert stats()["callee_entries"] == 1
    assert stats()["replays"] > 8


def test_the_limit_can_be_raised() -> None:
    compiled = eager(loop, max_forks=1000)
    for _ in range(3):
        x = torch.ones(2)
        assert torch.equal(loop(x)[0], compiled(x)[0])
    assert not glowplug.counters()["refusals"]
    assert stats()["replays"] == 2


def test_too_many_traces_leave_the_callees_compiled() -> None:
    def target(x: torch.Tensor, number: int) -> torch.Tensor:
        return step(x, 2.0) + number

    compiled = eager(target, max_traces=2)
    x = torch.randn(3)
    for number in range(8):
        assert torch.equal(target(x, number), compiled(x, number))
    assert stats()["callee_entries"] == 1
    assert stats()["replays"] >= 2


def leave(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` in a frame that is never recorded."""

    def outer(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs), (letter for letter in "ab")

    return outer


def test_exceptions_of_callees_are_the_programs_own() -> None:
    def check(x: torch.Tensor, limit: float) -> torch.Tensor:
        y = x.sin() + x.cos()
        if y.sum() > limit:
            raise ValueError("too large")
        return y

    target = leave(check)
    compiled = eager(target)
    x = torch.ones(3)
    for limit in (10.0, 10.0, 10.0, 10.0, 10.0):
        assert torch.equal(compiled(x, limit=limit)[0], check(x, limit))
    for _ in range(3):
        with pytest.raises(ValueError, match="too large") as caught:
            compiled(x, limit=-1.0)
        assert caught.traceback[-1].name == "check"


def test_functions_made_anew_are_not_entries() -> None:
    def target(x: torch.Tensor) -> Any:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y.sin() + y.cos()

        return inner(x), (letter for letter in "ab")

    compiled = eager(target)
    for _ in range(6):
        assert torch.equal(compiled(torch.ones(2))[0], target(torch.ones(2))[0])
    assert stats()["callee_entries"] == 0


def test_one_operator_is_not_worth_an_entry() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = eager(leave(one))
    for _ in range(8):
        assert torch.equal(compiled(torch.ones(2))[0], one(torch.ones(2)))
    # One operator alone pays where it becomes a kernel.
    assert (stats()["replays"] > 0) == NATIVE


def test_recursion() -> None:
    def down(x: torch.Tensor, depth: int) -> tuple[torch.Tensor, Any]:
        y = x.sin() + x.cos()
        if depth:
            y = down(y, depth - 1)[0]
        return y, (letter for letter in "ab")

    compiled = eager(down)
    for _ in range(40):
        assert torch.equal(compiled(torch.ones(2), 20)[0], down(torch.ones(2), 20)[0])


def test_comprehensions_and_keywords_belong_to_the_frame() -> None:
    def work(x: torch.Tensor, *, by: float) -> torch.Tensor:
        return (x * by).sin() + by

    def target(x: torch.Tensor) -> Any:
        parts = [work(x, **{"by": float(i)}) for i in range(2)]
        return parts[0] + parts[1], (letter for letter in "ab")

    compiled = eager(target)
    for _ in range(6):
        assert torch.equal(compiled(torch.ones(2))[0], target(torch.ones(2))[0])
    assert stats()["callee_entries"] == 1
    assert stats()["replays"] > 0


def test_fullgraph_raises_as_before() -> None:
    compiled = glowplug.compile(Net(), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="generator"):
        compiled(torch.randn(2, 4))


def test_threads() -> None:
    model, x = Net(), torch.randn(2, 4)
    expected = model(x)[0]
    compiled = eager(model)
    wrong: list[int] = []

    def work() -> None:
        for number in range(40):
            if not torch.equal(compiled(x)[0], expected):
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_reset_drops_them() -> None:
    model, x = Net(), torch.randn(2, 4)
    compiled = eager(model)
    call(compiled, model, x)
    glowplug.reset()
    assert entry_of(compiled).describe()["callees"] == []
    call(compiled, model, x)
