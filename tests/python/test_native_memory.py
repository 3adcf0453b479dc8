"""The memory that packed weights take: counted, limited, shared, and given back."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

import glowplug

pytestmark = pytest.mark.unverified(
    "verify mode has weights in memory that two processes share, which is not packed"
)

WIDTH = 512
MEGABYTE = 1 << 20  # a layer's weight


def packed_bytes() -> int:
    return glowplug.counters()["native"]["packed_weight_bytes"]


def refused() -> int:
    return glowplug.counters()["native"].get("native_budget", 0)


def layers(count: int = 1) -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(count))).eval()


def settle(call: Callable[[], object]) -> None:
    """Calls until no more is packed: what was held up has to earn its time first."""
    waits, before = 0, -1
    while waits < 50:
        call()
        now = packed_bytes() + refused()
        waits, before = (waits + 1 if now == before else 0), now


def ready(module: nn.Module, *inputs: torch.Tensor, **options):
    """Compiled; each of the inputs has been called with native code."""
    fast = glowplug.compile(module, options={"native": True, **options})
    with torch.no_grad():
        for x in inputs:
            for _ in range(8):
                fast(x)
                glowplug.wait()
            settle(lambda: fast(x))
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-4)
    return fast


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    glowplug.reset()
    gc.collect()
    return torch.randn(64, WIDTH)


def test_they_are_counted_and_given_back_with_the_entry(x):
    before = packed_bytes()
    fast = ready(layers(3), x)
    assert packed_bytes() - before == 3 * MEGABYTE
    del fast
    gc.collect()
    assert packed_bytes() == before


def test_they_are_given_back_at_a_reset(x):
    before = packed_bytes()
    fast = ready(layers(2), x)
    assert packed_bytes() > before
    glowplug.reset()
    assert packed_bytes() == before
    with torch.no_grad():
        fast(x)


def test_recordings_share_what_is_equal(x):
    before = packed_bytes()
    fast = ready(layers(), x, torch.randn(96, WIDTH))
    assert packed_bytes() - before == MEGABYTE
    del fast


def test_one_weight_used_twice_is_packed_once(x):
    layer = nn.Linear(WIDTH, WIDTH)
    before = packed_bytes()
    fast = ready(nn.Sequential(layer, nn.ReLU(), layer).eval(), x)
    assert packed_bytes() - before == MEGABYTE
    del fast


def test_a_changed_weight_takes_the_place_of_the_old_one(x):
    module = layers()
    before = packed_bytes()
    fast = ready(module, x)
    with torch.no_grad():
        module[0].weight.mul_(2)
        for _ in range(4):
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-4)
    assert packed_bytes() - before == MEGABYTE


@pytest.mark.parametrize(("limit", "fit"), [(0, 0), (1, 1), (2, 2), (4, 3)])
def test_no_more_than_the_limit(limit, fit, x):
    before, refused_before = packed_bytes(), refused()
    fast = ready(layers(3), x, packed_weights_mb=limit)
    assert packed_bytes() - before == fit * MEGABYTE
    assert refused() - refused_before == 3 - fit
    del fast


def test_convolutions_count_and_keep_to_the_limit(x):
    module = nn.Sequential(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).eval()
    image = torch.randn(1, 64, 16, 16)
    before = packed_bytes()
    fast = ready(module, image)
    assert packed_bytes() - before == 2 * module[0].weight.nbytes
    del fast
    gc.collect()
    assert packed_bytes() == before
    fast = ready(module, image, packed_weights_mb=0)
    assert packed_bytes() == before and refused() == 2
    del fast


def test_the_limit_is_a_number(x):
    with pytest.raises(ValueError, match="packed_weights_mb"):
        glowplug.compile(layers(), options={"packed_weights_mb": -1})
