"""Many threads call the same entries while others reset them: eager's results, and nothing kept."""

import contextlib
import gc
import random
import resource
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import glowplug

SHAPES = [(1, 8), (2, 8), (3, 8), (5, 8)]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, t: torch.Tensor) -> Any:
        y = torch.relu(self.linear(t)) + self.norm(t)
        return {"y": y, "parts": (t, [y * 2])}


class Box:
    """What a thread has for itself: written to by each call."""

    def __init__(self) -> None:
        self.last: Any = None
        self.results: list[Any] = []

    def holds(self, result: torch.Tensor) -> bool:
        """Whether it got `result`, and only that; empties it."""
        found, self.results = self.results, []
        return self.last is result and len(found) == 1 and found[0] is result


def note(t: torch.Tensor, box: Box) -> torch.Tensor:
    result = t * 2 + 1
    box.last = result
    box.results.append(result)
    return result


def branch(t: torch.Tensor) -> torch.Tensor:
    if t.sum() > 0:
        return t.cos() * 2
    return t.sin() - 1


def fail(t: torch.Tensor) -> torch.Tensor:
    if t.shape[0] == 2:
        raise ValueError("two rows")
    return t @ t.T


def in_place(t: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        u = t.clone()
        u.add_(1)
    return u * t


@contextlib.contextmanager
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_all(works: list[Callable[[], None]]) -> None:
    """Each work in a thread; the first exception of any is raised here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    with frequent_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


class Crowd:
    """Entries, inputs and what eager gives for each of them."""

    def __init__(self) -> None:
        modules = [Block().eval(), Block().eval()]
        functions: list[Any] = [*modules, branch, fail, in_place]
        # There are more inputs than an entry has recordings by default.
        options = {"max_traces": 32}
        self.compiled = [(f, glowplug.compile(f, options=options)) for f in functions]
        self.note = glowplug.compile(note, options=options)
        self.inputs = [torch.randn(s) for s in SHAPES]
        self.inputs += [-t for t in self.inputs] + [t.double() for t in self.inputs[:2]]
        self.expected = {
            (n, m, grad): self.outcome(f, t, grad)
            for n, f in enumerate(functions)
            for m, t in enumerate(self.inputs)
            for grad in (False, True)
        }

    def outcome(self, f: Any, t: torch.Tensor, grad: bool) -> Any:
        with torch.set_grad_enabled(grad):
            try:
                result = f(t)
            except (ValueError, RuntimeError) as error:
                return type(error), str(error)
        if isinstance(result, dict):
            assert result["parts"][0] is t
            return result["y"], result["parts"][1][0]
        return (result,)

    def same(self, expected: Any, got: Any) -> bool:
        pairs = list(zip(expected, got, strict=True))
        if not isinstance(expected[0], torch.Tensor):
            return expected == got
        return all(torch.equal(e, g) and e.requires_grad is g.requires_grad for e, g in pairs)

    def work(self, seed: int, calls: int) -> None:
        generator, box = random.Random(seed), Box()
        for number in range(1, calls + 1):
            n = generator.randrange(len(self.compiled))
            m = generator.randrange(len(self.inputs))
            grad = generator.random() < 0.3
            got = self.outcome(self.compiled[n][1], self.inputs[m], grad)
            if not self.same(self.expected[n, m, grad], got):
                raise AssertionError(f"{seed=} {number=} {n=} {m=} {grad=}: {got}")
            t = self.inputs[m]
            result = self.note(t, box)
            if not (box.holds(result) and torch.equal(result, t * 2 + 1)):
                raise AssertionError(f"{seed=} {number=}: {result}, {box.__dict__}")

    def reset(self, seed: int, done: threading.Event) -> None:
        generator = random.Random(seed)
        while not done.is_set():
            time.sleep(generator.random() * 0.01)
            if generator.random() < 0.5:
                glowplug.reset()
            else:
                glowplug._compile.entry_of(generator.choice(self.compiled)[1]).reset()
            glowplug.counters(), glowplug.compile_times()

    def run(self, callers: int, calls: int, resetters: int) -> None:
        done = threading.Event()
        helpers = [threading.Thread(target=self.reset, args=(n, done)) for n in range(resetters)]
        for helper in helpers:
            helper.start()
        try:
            run_all([lambda n=n: self.work(n, calls) for n in range(callers)])
        finally:
            done.set()
            for helper in helpers:
                helper.join()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", logger="glowplug")


@pytest.mark.parametrize("resetters", [0, 2])
def test_threads_on_several_entries(resetters: int) -> None:
    Crowd().run(callers=8, calls=300, resetters=resetters)
    if not resetters:
        stats = glowplug.counters()["stats"]
        assert stats["calls"] == 2 * 8 * 300
        assert stats["replays"] > 0.75 * stats["calls"]


@pytest.mark.slow
def test_two_hundred_thousand_calls() -> None:
    crowd = Crowd()
    crowd.run(callers=8, calls=1500, resetters=2)
    gc.collect()
    before, objects = resident_bytes(), len(gc.get_objects())
    crowd.run(callers=8, calls=12500, resetters=2)
    glowplug.reset()
    gc.collect()
    assert len(gc.get_objects()) - objects < 1000
    assert resident_bytes() - before < 16 << 20


def test_threads_start_on_one_new_entry() -> None:
    module, t = Block().eval(), torch.randn(3, 8)
    expected = module(t)["y"]
    for _ in range(20):
        compiled, barrier = glowplug.compile(module), threading.Barrier(8)

        def work() -> None:
            barrier.wait()
            for _ in range(5):
                assert torch.equal(compiled(t)["y"], expected)

        run_all([work] * 8)


def test_what_threads_used_dies() -> None:
    module = Block().eval()
    compiled = glowplug.compile(module)
    watched: list[weakref.ref[Any]] = [weakref.ref(module), weakref.ref(compiled)]

    def work() -> None:
        box = Box()
        noting = glowplug.compile(note)
        for n in range(20):
            t = torch.randn(1 + n % 2, 8)
            result = compiled(t)
            noting(t, box)
        watched.extend(weakref.ref(o) for o in (t, result["y"], box, noting, box.last))

    run_all([work] * 4)
    assert [ref() for ref in watched[2:]] == [None] * 20
    compiled = None
    del module, work
    gc.collect()
    assert [ref() for ref in watched] == [None] * 22


def test_state_of_a_thread_is_its_own(same: Any) -> None:
    def f(t: torch.Tensor) -> Any:
        y = t * 2
        return y, y.requires_grad, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), t @ t

    compiled, parameter = glowplug.compile(f), torch.randn(3, 3, requires_grad=True)
    settings = [
        contextlib.nullcontext,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ]

    def work(setting: Any) -> None:
        for _ in range(50):
            with setting():
                same(f(parameter), compiled(parameter))

    run_all([lambda s=s: work(s) for s in settings * 2])


def test_random_numbers_with_threads_that_draw_none(same: Any) -> None:
    def noisy(t: torch.Tensor) -> torch.Tensor:
        return t + torch.rand(3) + torch.nn.functional.dropout(t, 0.5)

    compiled, quiet = glowplug.compile(noisy), glowplug.compile(branch)
    t, done = torch.randn(3), threading.Event()

    def other() -> None:
        while not done.is_set():
            quiet(t)

    def work() -> None:
        try:
            outcomes = []
            for f in (noisy, compiled):
                torch.manual_seed(3)
                outcomes.append([f(t) for _ in range(200)])
            same(*outcomes)
        finally:
            done.set()

    run_all([work, other, other])


def test_an_entry_is_dropped_while_other_threads_call_it() -> None:
    t = torch.randn(2, 8)
    for _ in range(30):
        holder = [glowplug.compile(lambda x: x.cos() + x)]

        def work() -> None:
            while holder:
                with contextlib.suppress(IndexError):
                    assert torch.equal(holder[0](t), t.cos() + t)

        def drop() -> None:
            time.sleep(0.002)
            holder.clear()

        run_all([work, work, drop])


def test_threads_within_a_compiled_function(same: Any) -> None:
    def f(t: torch.Tensor) -> torch.Tensor:
        results: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: results.append(t.sin()))
        thread.start()
        thread.join()
        return results[0] * 2

    compiled = glowplug.compile(f)
    for n in (2, 3, 2, 3):
        t = torch.randn(n)
        same(f(t), compiled(t))


def test_a_recursive_entry_and_one_that_calls_another(same: Any) -> None:
    def down(t: torch.Tensor, n: int) -> torch.Tensor:
        return t if n == 0 else compiled(t * 2, n - 1) + 1

    def eager(t: torch.Tensor, n: int) -> torch.Tensor:
        return t if n == 0 else eager(t * 2, n - 1) + 1

    compiled = glowplug.compile(down)
    t = torch.randn(3)

    def work() -> None:
        for n in (3, 1, 3, 0, 2, 3):
            same(eager(t, n), compiled(t, n))

    run_all([work] * 4)


FIRST_RECORDINGS = """
import builtins, threading, time, torch, glowplug
plain = builtins.__import__
def importing(*args, **kwargs):
    time.sleep(0.001)  # as an import does that reads a file: other threads run
    return plain(*args, **kwargs)
def work():
    barrier.wait()
    t = torch.ones(2)
    assert torch.equal(glowplug.compile(lambda x: x.cos() + 1)(t), t.cos() + 1)
barrier = threading.Barrier(4)
threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
builtins.__import__ = importing
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.slow
def test_the_first_recordings_of_a_process_are_in_several_threads() -> None:
    subprocess.run([sys.executable, "-c", FIRST_RECORDINGS], check=True, timeout=30)
