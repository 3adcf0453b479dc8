"""disable, is_compiling, stances, counters, compile times, reset, wait."""

import threading

import pytest
import torch
from torch import nn

import glowplug
from conftest import NATIVE


def plus_one(x):
    return x + 1


def test_a_disabled_function_runs_at_each_call(same):
    calls = []

    @glowplug.disable
    def helper(x):
        calls.append(x.shape)
        return x * 2

    @glowplug.compile
    def f(x):
        return helper(x + 1) - 1

    x = torch.randn(3)
    for number in range(1, 4):
        same((x + 1) * 2 - 1, f(x))
        assert len(calls) == number


def test_disable_keeps_name_and_module_api(same):
    @glowplug.disable()
    def helper(x):
        """Double."""
        return x * 2

    assert helper.__name__ == "helper"
    assert helper.__doc__ == "Double."
    lin = nn.Linear(2, 2)
    off = glowplug.disable(lin)
    assert isinstance(off, nn.Linear)
    assert off.weight is lin.weight
    x = torch.randn(1, 2)
    with torch.no_grad():
        same(lin(x), off(x))
    with pytest.raises(TypeError, match="callable"):
        glowplug.disable(3)


def test_is_compiling_is_false_outside():
    assert glowplug.is_compiling() is False


def test_stances_are_checked_by_name():
    with pytest.raises(ValueError, match=r"'eagerly'.*known: default, force_eager"):
        glowplug.set_stance("eagerly")


def test_force_eager_records_nothing(same):
    compiled = glowplug.compile(plus_one)
    with glowplug.set_stance("force_eager"):
        same(torch.ones(2) + 1, compiled(torch.ones(2)))
    assert glowplug.counters()["stats"].get("recordings", 0) == 0
    compiled(torch.ones(2))
    assert glowplug.counters()["stats"]["recordings"] == 1


def test_a_stance_ends_with_its_block_and_with_its_function(same):
    compiled = glowplug.compile(plus_one)
    compiled(torch.ones(2))

    @glowplug.set_stance("fail_on_recompile")
    def strict(x):
        return compiled(x)

    same(torch.ones(2) + 1, strict(torch.ones(2)))
    with pytest.raises(RuntimeError, match="fail_on_recompile"):
        strict(torch.ones(2, dtype=torch.int64))
    same(torch.ones(2, dtype=torch.int64) + 1, compiled(torch.ones(2, dtype=torch.int64)))


def test_eager_on_recompile_adds_no_recording(same):
    compiled = glowplug.compile(plus_one)
    compiled(torch.ones(2))
    with glowplug.set_stance("eager_on_recompile"):
        x = torch.ones(2, dtype=torch.int64)
        same(x + 1, compiled(x))
    assert glowplug.counters()["stats"]["recordings"] == 1


def test_counters_count_and_reset_forgets():
    compiled = glowplug.compile(plus_one)
    for _ in range(3):
        compiled(torch.ones(2))
    stats = glowplug.counters()["stats"]
    assert stats["calls"] == 3
    assert stats["recordings"] == 1
    assert stats["unique_graphs"] == 1
    assert glowplug.counters()["graph_break"] == {}
    glowplug.reset()
    assert glowplug.counters()["stats"].get("calls", 0) == 0
    compiled(torch.ones(2))
    assert glowplug.counters()["stats"]["recordings"] == 1


def test_a_recompile_is_counted_under_its_guard():
    compiled = glowplug.compile(plus_one)
    compiled(torch.ones(2))
    compiled(torch.ones(2, dtype=torch.float64))
    recompiles = glowplug.counters()["recompiles"]
    assert sum(recompiles.values()) == 1
    assert all(isinstance(reason, str) and reason for reason in recompiles)


def test_compile_times_name_phases():
    glowplug.compile(plus_one)(torch.ones(2))
    times = glowplug.compile_times()
    assert len(times) > 0
    assert all(phase.seconds >= 0 and phase.runs >= 1 for phase in times)
    text = str(times)
    assert all(phase.name in text for phase in times)
    glowplug.compile(plus_one)(torch.ones(2))
    later = glowplug.compile_times().since(times)
    runs = {phase.name: phase.runs for phase in later}
    assert runs["capture"] == runs["build"] == 1
    assert NATIVE or len(runs) == 2


def test_wait_returns_at_once():
    done = threading.Event()
    thread = threading.Thread(target=lambda: (glowplug.wait(), done.set()))
    thread.start()
    thread.join(timeout=5)
    assert done.is_set()
