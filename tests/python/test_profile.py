"""``glowplug.profile``: parts that add up, rates that count right."""

import json
import time
from typing import Any

import pytest
import torch
from torch import nn

import glowplug
from glowplug._profile import break_even


def blocks():
    layers = [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(8)]
    return nn.Sequential(*layers).eval()


def profiled_calls() -> tuple[dict[str, Any], float]:
    """The report of thirty calls of a new entry and a pause, and the wall clock's seconds."""
    net, x = blocks(), torch.randn(64, 32)
    compiled = glowplug.compile(net)
    with torch.no_grad():
        start = time.perf_counter()
        with glowplug.profile() as p:
            for _ in range(30):
                compiled(x)
            time.sleep(0.02)
        wall = time.perf_counter() - start
    return p.report(), wall


def test_parts_add_up_to_the_wall_clock():
    def unexplained(report, wall):
        parts = sum(report[f"{cost}_s"] for cost in ("guard", "compile", "execute", "outside"))
        return max(abs(parts - wall) / wall, abs(report["unaccounted_s"]) / report["in_calls_s"])

    # A loaded machine can stop the process between two readings of the clock, but not each time.
    runs = [profiled_calls() for _ in range(5)]
    assert min(unexplained(report, wall) for report, wall in runs) <= 0.05
    for report, _ in runs:
        assert report["outside_s"] >= 0.02
        assert report["calls"] == 30
        assert report["kinds"] == {"recorded": 1, "replayed": 29}
        assert all(report[f"{cost}_s"] > 0 for cost in ("guard", "compile", "execute"))


def test_rates():
    compiled = glowplug.compile(lambda x: x + 1)
    with glowplug.profile() as p:
        compiled(torch.ones(2))
        compiled(torch.ones(2))
        compiled(torch.ones(2, dtype=torch.float64))
        compiled(torch.ones(2, dtype=torch.float64))
    assert p.rebuild_rate() == pytest.approx(1 / 4)
    assert p.guard_hit_rate() == pytest.approx(2 / 3)
    assert 0 < p.compile_ratio() < 1
    report = p.report()
    assert sum(report["rebuilds"].values()) == 1
    assert any("were replayed" in flag for flag in report["flags"])


def test_nothing_is_measured_outside_the_block():
    compiled = glowplug.compile(lambda x: x + 1)
    compiled(torch.ones(2))
    with glowplug.profile() as p:
        pass
    compiled(torch.ones(2))
    assert p.report()["calls"] == 0
    assert p.report()["guard_hit_rate"] == 1.0


def test_the_baseline_gives_speed_up_and_break_even():
    net, x = blocks(), torch.randn(4, 32)
    compiled = glowplug.compile(net)
    p = glowplug.profile()
    with torch.no_grad():
        eager = p.baseline(compiled, x)
        with p:
            for _ in range(20):
                compiled(x)
    report = p.report()
    assert report["eager_s"] == eager > 0
    assert report["speed_up"] == pytest.approx(eager / report["steady_s"])
    assert report["break_even_calls"] is None or report["break_even_calls"] >= 1
    assert "speed-up" in str(p)


def test_figures_from_elsewhere():
    p = glowplug.profile()
    p.record_forward(compile_s=0.5, execute_s=0.5)
    p.record_forward(guard_s=0.25, execute_s=0.75)
    p.record_forward(compile_s=1.0, rebuilt=True, reason="shape")
    report = p.report()
    assert report["in_calls_s"] == pytest.approx(3.0)
    assert report["compile_ratio"] == pytest.approx(0.5)
    assert report["rebuild_rate"] == pytest.approx(1 / 3)
    assert report["guard_hit_rate"] == pytest.approx(1 / 2)
    assert report["rebuilds"] == {"shape": 1}
    assert report["limits"]["compile"] == pytest.approx(2.0)
    assert len(report["flags"]) == 2


def test_save_and_print(tmp_path):
    p = glowplug.profile()
    p.record_forward(execute_s=0.001)
    p.save(tmp_path / "profile.json")
    saved = json.loads((tmp_path / "profile.json").read_text())
    assert saved["report"]["calls"] == 1
    assert len(saved["calls"]) == 1
    assert all(word in str(p) for word in ("guard", "compile", "execute", "outside", "1 calls"))


@pytest.mark.parametrize(
    ("extra", "eager", "steady", "calls"),
    [(0.0, 1.0, 0.5, 1), (1.0, 1.0, 0.5, 3), (1.0, 1.0, 1.0, None), (-1.0, 1.0, 2.0, 1)],
)
def test_break_even(extra, eager, steady, calls):
    assert break_even(extra, eager, steady) == calls


def test_nested_calls_are_not_counted_twice():
    inner = glowplug.compile(lambda x: x + 1)

    @glowplug.disable
    def opaque(x):
        time.sleep(0.005)
        return inner(x)

    outer = glowplug.compile(lambda x: opaque(x) * 2)
    outer(torch.ones(2))
    outer(torch.ones(2))
    with glowplug.profile() as p:
        outer(torch.ones(2))
    report = p.report()
    assert report["in_calls_s"] <= report["wall_s"]
    assert report["wall_s"] < 0.009 + 0.05
