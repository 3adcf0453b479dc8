"""What a program does at its first call and never again: caches are filled, modules imported."""

import functools
import threading
from typing import Any

import torch
from torch import nn

import glowplug


def stats() -> dict[str, int]:
    return glowplug.counters()["stats"]


def test_a_cache_is_filled_once(same: Any) -> None:
    ran: list[int] = []

    @functools.lru_cache
    def twice(n: int) -> int:
        ran.append(n)
        return 2 * n

    def f(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x + twice(len(x)), twice(7)

    compiled = glowplug.compile(f)
    for calls in range(1, 5):
        same(compiled(torch.ones(3)), (torch.full((3,), 7.0), 14))
        # As eager counts them.
        assert twice.cache_info()[:2] == (2 * calls - 2, 2)
    assert ran == [3, 7]
    assert stats()["replays"] == 2
    assert glowplug.counters()["refusals"] == {"cache_filled": 1}
    assert not glowplug.counters()["graph_break"]


def test_a_cache_that_is_cleared_is_filled_again(same: Any) -> None:
    factor = 2
    seen: list[int] = []

    @functools.cache
    def scaled(n: int) -> int:
        seen.append(factor)
        return factor * n

    def f(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = x * scaled(3)
        return y, len(seen)

    compiled = glowplug.compile(f)
    for _ in range(3):
        same(compiled(torch.ones(2)), (torch.full((2,), 6.0), 1))
    factor = 5
    same(compiled(torch.ones(2)), (torch.full((2,), 6.0), 1))
    scaled.cache_clear()
    for _ in range(3):
        same(compiled(torch.ones(2)), (torch.full((2,), 15.0), 2))
    assert seen == [2, 5]


def test_a_cache_that_raises(same: Any) -> None:
    @functools.cache
    def checked(n: int) -> int:
        if n == 2:
            raise ValueError(n)
        return n

    def f(x: torch.Tensor) -> Any:
        try:
            return x + checked(len(x))
        except ValueError as error:
            return x - 1, str(error)

    compiled = glowplug.compile(f)
    for n in (3, 3, 2, 2, 3, 2):
        same(compiled(torch.ones(n)), f(torch.ones(n)))


def test_cached_objects_keep_their_identity() -> None:
    @functools.cache
    def table(n: int) -> list[int]:
        return list(range(n))

    @functools.cache
    def positions(n: int) -> torch.Tensor:
        return torch.arange(n)

    def f(x: torch.Tensor) -> Any:
        return x + positions(len(x)), table(2), positions(len(x))

    compiled = glowplug.compile(f)
    for _ in range(4):
        total, items, cached = compiled(torch.ones(3))
        assert items is table(2) and cached is positions(3)
        assert torch.equal(total, torch.tensor([1.0, 2.0, 3.0]))
    assert stats()["replays"] >= 2 and not glowplug.counters()["graph_break"]


def test_a_layer_that_is_made_ready_at_the_first_call(same: Any) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.scale is None:
                exec("import colorsys")  # opaque, and in no later call
                self.scale = torch.full((x.shape[-1],), 3.0)
            return x * self.scale

    net = Lazy()
    compiled = glowplug.compile(net)
    for _ in range(4):
        same(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert stats()["replays"] == 2 and not stats()["eager_calls"]
    assert glowplug.counters()["graph_break"] == {"opaque_call": 1}


def test_what_comes_again_is_for_good() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        exec("pass")
        return x + 1

    compiled = glowplug.compile(f)
    for _ in range(4):
        compiled(torch.ones(2))
    assert stats()["eager_calls"] == 2 and not stats()["recordings"]
    assert glowplug.counters()["graph_break"] == {"opaque_call": 1}
    assert glowplug.counters()["refusals"] == {"opaque_call": 1}


def test_locks_are_taken_at_each_call(same: Any) -> None:
    class Count(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lock, self.inner = threading.Lock(), threading.RLock()
            self.ready = False

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, bool]:
            with self.lock, self.inner:
                self.ready = True
                y = x * 2
            return y + 1, self.lock.locked()

    net = Count()
    compiled = glowplug.compile(net)
    for _ in range(4):
        same(compiled(torch.ones(2)), (torch.full((2,), 3.0), False))
    assert stats()["replays"] >= 2 and not glowplug.counters()["graph_break"]
    with net.lock:
        waiting = threading.Thread(target=compiled, args=(torch.ones(2),))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
    waiting.join()
