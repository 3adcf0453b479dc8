"""Many threads call the same entries while others reset them: eager's results, and nothing kept."""

import contextlib
import gc
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

import glowplug
from thread_programs import Block, Box, Crowd, Weight, branch, note, run_all


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", logger="glowplug")


@pytest.mark.parametrize("resetters", [0, 2])
def test_threads_on_several_entries(resetters: int) -> None:
    Crowd().run(callers=8, calls=400, resetters=resetters)
    if not resetters:
        stats = glowplug.counters()["stats"]
        assert stats["calls"] == 8 * 400
        assert stats["replays"] > 0.5 * stats["calls"]
        refusals = glowplug.counters()["refusals"]
        assert refusals["too_many_traces"] >= 1


@pytest.mark.slow
def test_two_hundred_thousand_calls() -> None:
    crowd = Crowd()
    crowd.run(callers=8, calls=2500, resetters=2)
    glowplug.reset()
    gc.collect()
    before, objects = resident_bytes(), len(gc.get_objects())
    crowd.run(callers=8, calls=25_000, resetters=2)
    glowplug.reset()
    gc.collect()
    assert len(gc.get_objects()) - objects < 1000
    assert resident_bytes() - before < 16 << 20


@contextlib.contextmanager
def collections(what: Callable[[], object], threshold: int) -> Iterator[None]:
    """A collection after every few new objects, and in each of them a call of `what`."""

    def callback(phase: str, info: dict[str, int]) -> None:
        what()

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(threshold)
    try:
        yield
    finally:
        gc.callbacks.remove(callback)
        gc.set_threshold(*before)


@pytest.mark.unverified("calls at each collection, and verify mode makes many")
def test_threads_that_take_turns_at_every_collection() -> None:
    with collections(lambda: time.sleep(0), 5):
        Crowd().run(callers=8, calls=30, resetters=2)
        assert gc.get_threshold()[0] == 5


@pytest.mark.unverified("a call at each collection, and verify mode makes many")
def test_a_collection_in_the_middle_of_a_check_calls_the_same_entry(same: Any) -> None:
    def gradient(own: Weight) -> torch.Tensor:
        return own.weight * 2 + own.weight.grad

    compiled, owns = glowplug.compile(gradient), [Weight(), Weight()]

    def renew() -> None:
        # backward() makes no Python object for a gradient, so a check that looks at it must.
        for own in owns:
            own.weight.grad = None
            (own.weight * own.weight).sum().backward()

    def call_with_another() -> None:
        if not glowplug.is_compiling():
            others.append(compiled(owns[1]))

    others: list[torch.Tensor] = []
    with torch.no_grad():
        owns[1].weight.mul_(3)
    renew()
    expected = [gradient(own) for own in owns]
    compiled(owns[0])
    for _ in range(50):
        renew()
        with collections(call_with_another, 1):
            got = compiled(owns[0])
        same(expected[0], got)
        for other in others:
            same(expected[1], other)
        others.clear()


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
