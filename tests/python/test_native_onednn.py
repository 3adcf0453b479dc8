"""oneDNN's primitives past torch's operators: without them, with other threads, when it refuses."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import glowplug

pytestmark = pytest.mark.unverified(
    "verify mode has weights in memory that two processes share, which is not packed"
)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU6()]
    layers += [nn.Conv2d(16, 16, 3, groups=16), nn.SiLU(), nn.Conv2d(16, 8, 1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 14 * 14, 64)).eval()


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(1)
    glowplug.reset()
    return torch.randn(2, 3, 16, 16)


def ready(module: Callable, *args: torch.Tensor, **options):
    fast = glowplug.compile(module, options={"native": True, **options})
    with torch.no_grad():
        for _ in range(4):
            fast(*args)
            glowplug.wait()
    return fast


def run_alone(program: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


def test_torchs_operators_give_the_same(x):
    module = network()
    ours, torchs = ready(module, x), ready(module, x, symbols=False)
    with torch.no_grad():
        expected = module(x)
        for found in (ours(x), torchs(x)):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_library_without_symbols_is_counted(x):
    ready(network(), x)
    assert "native_library" not in glowplug.counters()["native"]
    ready(network(), x, symbols=False)
    assert glowplug.counters()["native"]["native_library"] == 3
    glowplug.reset()
    ready(network(), x, prepare=False)  # asked for, so not worth a count
    assert "native_library" not in glowplug.counters()["native"]


def test_uneven_padding_without_symbols_is_eagers(x):
    conv = nn.Conv2d(3, 8, 3)

    def program(x):
        return conv(F.pad(x, [0, 1, 0, 1]))

    fast = ready(program, x, symbols=False)
    with torch.no_grad():
        assert torch.equal(fast(x), program(x))
    report = glowplug.explain(ready(program, x, symbols=False))
    with torch.no_grad():
        reasons = {fate.op: fate.reason for fate in report(x).native}
    assert reasons["aten::conv2d"] == "native_library"


@pytest.mark.parametrize("symbols", [True, False])
def test_a_bias_with_gaps(symbols, x):
    weight, linear = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.randn(128, 16))
    gaps, one = torch.randn(256)[::2], torch.randn(1)

    def program(x):
        y = F.conv2d(x, weight, gaps[:8]), F.conv2d(x, weight, one.expand(8))
        return *y, F.linear(x, linear, gaps), F.linear(x, linear, one.expand(128))

    fast = ready(program, x, symbols=symbols)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), program(x), rtol=1e-5, atol=1e-5)


def test_threads_with_numbers_of_threads_of_their_own(x):
    module = network()
    fast = ready(module, x)
    with torch.no_grad():
        expected = module(x)

    def calls(threads: int) -> bool:
        torch.set_num_threads(threads)
        with torch.no_grad():
            found = [fast(x) for _ in range(50)]
        return all(torch.allclose(f, expected, rtol=1e-5, atol=1e-5) for f in found)

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(calls, (1, 2, 3, 4, 5, 6)))
    finally:
        torch.set_num_threads(threads)
    assert "native_onednn" not in glowplug.counters()["native"]


def test_threads_that_end(x):
    fast = ready(network(), x)
    with torch.no_grad():
        expected = fast(x)
        for _ in range(20):
            with ThreadPoolExecutor(1) as pool:
                found = pool.submit(torch.no_grad()(fast), x).result()
            assert torch.equal(found, expected)


def test_a_forked_process_on_one_thread():
    run_alone(
        """
        import os, torch, glowplug
        from torch import nn
        module = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 1)).eval()
        x = torch.randn(2, 3, 16, 16)
        fast = glowplug.compile(module, options={"native": True})
        with torch.no_grad():
            for _ in range(4):
                expected = fast(x)
                glowplug.wait()
            child = os.fork()
            if child == 0:
                torch.set_num_threads(1)
                same = all(torch.allclose(fast(x), expected, atol=1e-5) for _ in range(3))
                os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
        """
    )


# The packed weight would be the only large block that a call asks for.
@pytest.mark.parametrize(
    ("layer", "sizes"),
    [("nn.Conv2d(2048, 2048, 3)", (1, 2048, 3, 3)), ("nn.Linear(6144, 6144)", (8, 6144))],
)
def test_a_weight_that_cannot_be_packed_for_want_of_memory(layer, sizes):
    run_alone(
        f"""
        import resource, torch, glowplug
        from torch import nn
        torch.set_num_threads(1)
        module = {layer}.eval()
        x = torch.randn({sizes})
        fast = glowplug.compile(module, options={{"native": True}})
        with torch.no_grad():
            expected = module(x)
            fast(x)
            glowplug.wait()
            pages = int(open("/proc/self/statm").read().split()[0])
            limit = pages * resource.getpagesize() + (96 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            for _ in range(4):
                torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-4)
        native = glowplug.counters()["native"]
        assert native["native_onednn"] == 1 and native["packed_weight_bytes"] == 0, native
        """
    )
