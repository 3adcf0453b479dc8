"""What is kept alive, and for how long; many threads."""

import gc
import resource
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.nn as nn

import glowplug
from conftest import equal


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.history: dict[str, Any] = {"scale": 2.0}

    def forward(self, t: torch.Tensor) -> Any:
        y = torch.relu(self.linear(t)) + self.norm(t) * self.history["scale"]
        return {"y": y, "parts": [y * 2, (t,)]}


def test_module_inputs_and_results_die() -> None:
    module = Block(8)
    compiled = glowplug.compile(module)
    t = torch.randn(3, 8)
    for _ in range(3):
        result = compiled(t)
    watched = [
        weakref.ref(o) for o in (module, module.linear.weight, t, result["y"], result["parts"][0])
    ]
    del result
    assert watched[3]() is None and watched[4]() is None
    del t
    assert watched[2]() is None
    del module, compiled
    gc.collect()
    assert [ref() for ref in watched] == [None] * 5


def test_a_function_and_what_it_closes_over_die() -> None:
    def build() -> tuple[Any, weakref.ref[Any]]:
        module = Block(4)

        def run(t: torch.Tensor) -> torch.Tensor:
            return module(t)["y"]

        return glowplug.compile(run), weakref.ref(module)

    compiled, module = build()
    for _ in range(3):
        compiled(torch.randn(2, 4))
    assert module() is not None
    del compiled
    gc.collect()
    assert module() is None


def test_a_hook_that_was_removed_dies() -> None:
    module = Block(4)
    compiled = glowplug.compile(module)
    big = [torch.zeros(10)]

    def hook(_module: nn.Module, _args: Any, result: Any) -> Any:
        return {**result, "big": big[0]}

    handle = module.register_forward_hook(hook)
    for _ in range(2):
        assert "big" in compiled(torch.randn(2, 4))
    watched = weakref.ref(hook)
    handle.remove()
    del hook, handle
    gc.collect()
    assert watched() is None
    assert "big" not in compiled(torch.randn(2, 4))


PEAK = """
import resource, torch, glowplug
def chain(t):
    for _ in range(20):
        t = t * 1.5
    return t.sum()
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
t = torch.ones(1 << 23)  # 32 MiB
small = torch.ones(8)
compiled = glowplug.compile(chain)
compiled(small)
chain(t)
before = peak()
compiled(t)  # recorded: another size
compiled(t)
assert glowplug.counters()["stats"]["recordings"] == 2, glowplug.counters()
print(peak() - before)
"""


def test_intermediates_are_freed_while_recording_and_replaying() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    kibibytes = int(done.stdout)
    assert kibibytes < 48 << 10, "20 intermediates of 32 MiB were not freed as eager frees them"


@pytest.mark.unverified("thousands of calls, and about the memory that they use")
def test_a_thousand_recordings_leave_memory_flat() -> None:
    module = Block(8)
    compiled = glowplug.compile(module)
    t = torch.randn(3, 8)

    def record(count: int) -> None:
        for _ in range(count):
            glowplug.reset()
            compiled(t)
            compiled(t)

    record(100)
    gc.collect()
    before = resident_bytes()
    objects = len(gc.get_objects())
    record(1000)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert resident_bytes() - before < 4 << 20


def test_threads_on_one_entry_and_on_two() -> None:
    modules = [Block(8), Block(8)]
    compiled = [glowplug.compile(module) for module in modules]
    failures: list[str] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for n in range(60):
            t = torch.randn(1 + (n + seed) % 4, 8, generator=generator)
            which = (n + seed) % 2
            with torch.set_grad_enabled(n % 3 == 0):
                got, expected = compiled[which](t), modules[which](t)
            if not equal(expected["y"], got["y"]) or got["parts"][1][0] is not t:
                failures.append(f"{seed} {n}")
            if got["y"].requires_grad is not (n % 3 == 0):
                failures.append(f"{seed} {n} grad mode")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
