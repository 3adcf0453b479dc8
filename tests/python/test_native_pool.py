"""Memory that calls use again: never while anybody has it, and given back in the end."""

import os
import pickle
import threading

import pytest
import torch
from torch import nn

import glowplug

ROWS, WIDTH = 256, 512


class Block(nn.Module):
    """Layers, kernels and operators of torch, each with results large enough for the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        h = self.down(torch.nn.functional.gelu(self.up(self.norm(x)) * 2))
        return torch.cat([x + h, h.roll(1, 0)], 1)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Block().eval()


def warm(model: nn.Module, **options):
    fast = glowplug.compile(model, options={"native": True, **options})
    x = torch.randn(ROWS, WIDTH)
    with torch.no_grad():
        for _ in range(3):
            fast(x)
        glowplug.wait()
        for _ in range(3):
            fast(x)
    return fast


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def pool() -> dict[str, int]:
    return glowplug.counters()["pool"]


@torch.no_grad()
def test_later_calls_take_no_fresh_memory(model):
    fast = warm(model)
    before = pool()
    for _ in range(5):
        x = torch.randn(ROWS, WIDTH)
        assert close(fast(x), model(x))
    after = pool()
    assert after["fresh"] == before["fresh"]
    assert after["reused"] > before["reused"]


@torch.no_grad()
def test_results_stay_what_they_are(model):
    fast = warm(model)
    kept = []
    for _ in range(20):
        x = torch.randn(ROWS, WIDTH)
        found = fast(x)
        kept.append((found, found.clone(), model(x)))
    assert len({found.data_ptr() for found, _, _ in kept}) == len(kept)
    for found, copy, expected in kept:
        assert torch.equal(found, copy) and close(found, expected)


@torch.no_grad()
def test_views_of_results_keep_their_memory(model):
    fast = warm(model)
    x = torch.randn(ROWS, WIDTH)
    row = fast(x)[3]
    array = fast(x).numpy()
    for _ in range(5):
        fast(torch.randn(ROWS, WIDTH))
    expected = model(x)
    assert close(row, expected[3]) and close(torch.from_numpy(array), expected)


@torch.no_grad()
def test_threads_do_not_share_memory(model):
    fast = warm(model)
    wrong = []

    def call(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(10):
                x = torch.randn(ROWS, WIDTH, generator=generator)
                if not close(fast(x), model(x)):
                    wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@torch.no_grad()
def test_a_result_may_be_freed_by_another_thread_and_after_a_reset(model):
    fast = warm(model)
    x = torch.randn(ROWS, WIDTH)
    results = [fast(x) for _ in range(4)]
    thread = threading.Thread(target=results.pop)
    thread.start()
    thread.join()
    glowplug.reset()
    expected = model(x)
    assert all(close(result, expected) for result in results)
    del results, expected
    glowplug.reset()
    assert pool()["bytes_idle"] == 0


@torch.no_grad()
def test_switched_off_nothing_comes_from_the_pool(model):
    before = pool()
    fast = warm(model, pool=False)
    x = torch.randn(ROWS, WIDTH)
    assert close(fast(x), model(x))
    assert (pool()["fresh"], pool()["reused"]) == (before["fresh"], before["reused"])


@pytest.mark.unverified("verify mode has results in memory that two processes share")
@torch.no_grad()
def test_memory_of_the_pool_is_like_any_other(model):
    fast = warm(model)
    x = torch.randn(ROWS, WIDTH)
    found, expected = fast(x), model(x)
    assert torch.equal(pickle.loads(pickle.dumps(found)), found)
    grown = found.clone().resize_(4, 3)
    assert grown.shape == (4, 3)
    found.resize_(2 * ROWS, 2 * WIDTH)
    assert close(found[:ROWS], expected)
    assert close(fast(x).share_memory_(), expected)


@torch.no_grad()
def test_a_result_may_become_a_weight(model):
    fast = warm(model)
    weight = fast(torch.randn(ROWS, WIDTH))
    layer = nn.Linear(2 * WIDTH, ROWS, bias=False).eval()
    layer.weight = nn.Parameter(weight, requires_grad=False)
    x = torch.randn(64, 2 * WIDTH)
    packed = glowplug.compile(layer, options={"native": True})
    for _ in range(3):
        packed(x)
        glowplug.wait()
    for factor in (1.0, 2.0, 3.0):
        layer.weight.mul_(factor)
        assert close(packed(x) / factor, layer(x) / factor)


@torch.no_grad()
def test_a_child_process_goes_on(model):
    fast = warm(model)
    x = torch.randn(ROWS, WIDTH)
    expected = model(x)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if close(fast(x), expected) else 1)
    finally:
        torch.set_num_threads(threads)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@torch.no_grad()
def test_the_profiler_sees_what_is_taken(model):
    fast = warm(model)
    x = torch.randn(ROWS, WIDTH)
    with torch.profiler.profile(profile_memory=True) as profile:
        kept = fast(x)
    taken = sum(event.self_cpu_memory_usage for event in profile.key_averages())
    assert taken >= kept.nbytes
