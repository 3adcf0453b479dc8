"""What all tests of the Python surface share: a clean engine, and eager as the oracle."""

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

# No test depends on what an earlier run has left on the disk.
os.environ.setdefault("GLOWPLUG_CACHE", "0")

import glowplug

with contextlib.suppress(ImportError):
    # Verify mode checks nothing while other threads are alive, and torch shows bars in some tests.
    importlib.import_module("tqdm").tqdm.monitor_interval = 0

VERIFYING = os.environ.get("GLOWPLUG_VERIFY", "0") not in ("", "0")
# Tests want eager's bits: kernels are made only where a test or GLOWPLUG_NATIVE=1 asks for them.
NATIVE = os.environ.setdefault("GLOWPLUG_NATIVE", "0") not in ("", "0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of verify mode come first: it checks nothing beside threads, and some tests leave such.

    Under GLOWPLUG_VERIFY=1 the tests of what verify mode itself changes are left out.
    """
    items.sort(key=lambda item: item.path.name != "test_verify.py")
    if not VERIFYING:
        return
    torch.set_num_threads(1)  # as verify mode does: the last bits depend on it
    left_out = [item for item in items if item.get_closest_marker("unverified")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Nothing recorded, nothing counted, default stance; the same random numbers each time."""
    glowplug.reset()
    torch.manual_seed(0)
    yield
    glowplug.set_stance("default")
    glowplug.reset()


def equal(expected: torch.Tensor, got: torch.Tensor) -> bool:
    """To the bit; where kernels may be at work, as close as fused reductions are to eager."""
    if NATIVE and expected.dtype == torch.float32:
        return torch.allclose(expected, got, rtol=1e-5, atol=1e-5, equal_nan=True)
    return torch.equal(expected, got)


def graph_counts() -> tuple[int, int]:
    """(graphs, breaks) counted since the test began."""
    counted = glowplug.counters()
    return counted["stats"].get("unique_graphs", 0), sum(counted["graph_break"].values())


@pytest.fixture
def counts() -> Callable[[], tuple[int, int]]:
    return graph_counts


def assert_same(expected: Any, got: Any) -> None:
    """Equal in type and structure, tensors to the bit, with dtype and strides."""
    assert type(expected) is type(got)
    if isinstance(expected, torch.Tensor):
        assert expected.dtype == got.dtype
        assert expected.stride() == got.stride()
        assert equal(expected, got)
    elif isinstance(expected, dict):
        assert list(expected) == list(got)
        for key in expected:
            assert_same(expected[key], got[key])
    elif isinstance(expected, (list, tuple)):
        assert len(expected) == len(got)
        for left, right in zip(expected, got, strict=True):
            assert_same(left, right)
    else:
        assert expected == got


@pytest.fixture
def same() -> Callable[[Any, Any], None]:
    return assert_same
