"""The report of ``glowplug.explain``."""

import pytest
import torch
from torch import nn

import glowplug


def test_a_whole_graph(same):
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    with torch.no_grad():
        report = glowplug.explain(net)(torch.randn(2, 3))
    assert report.graph_count == 1
    assert report.graph_break_count == 0
    assert report.op_count == 2
    assert [name.split(".")[0] for name in report.op_names[0]] == ["aten::linear", "aten::relu"]
    assert report.refusal is None
    assert report.guards
    text = str(report)
    for line in ("Graph Count: 1", "Graph Break Count: 0", "Op Count: 2", "Break Reasons:"):
        assert line in text
    assert "Compile Times:" in text
    assert any(guard.site for guard in report.guards)


def test_a_break_has_reason_stack_and_hint():
    @glowplug.disable
    def opaque(y):
        return y.sum()

    def f(x):
        y = x + 1
        z = opaque(y)
        return y * z

    report = glowplug.explain(f)(torch.ones(2))
    assert report.graph_break_count == 1
    reason = report.break_reasons[0]
    assert reason.reason == "disabled"
    assert "opaque" in reason.detail
    assert reason.file.endswith("test_explain.py")
    assert reason.line == f.__code__.co_firstlineno + 2
    assert reason.hint
    text = str(report)
    assert "Break Reason 1:" in text
    assert "User Stack:" in text
    assert f"line {reason.line}" in text


def test_a_branch_on_a_value_is_a_fork():
    def f(x):
        y = x + 1
        return y * 2 if y.sum() > 0 else y - 1

    report = glowplug.explain(f)(torch.ones(2))
    assert (report.graph_count, report.graph_break_count, report.forks) == (2, 0, 1)


def test_the_call_happens_once_and_earlier_recordings_stay():
    calls = []

    def f(x):
        calls.append(1)
        return x + 1

    compiled = glowplug.compile(f)
    compiled(torch.ones(2))
    report = glowplug.explain(compiled)(torch.ones(2))
    assert len(calls) == 2
    assert report.graph_count == 1
    recordings = glowplug.counters()["stats"]["recordings"]
    compiled(torch.ones(2))
    assert glowplug.counters()["stats"]["recordings"] == recordings


def test_an_exception_of_the_call_comes_through():
    def f(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        glowplug.explain(f)(torch.ones(2))


@pytest.mark.filterwarnings("ignore:coroutine")
def test_what_stays_eager_says_why():
    async def later(x):
        return x

    def f(x):
        coroutine = later(x)
        return coroutine, x + 1

    report = glowplug.explain(f)(torch.ones(2))
    assert report.refusal is not None
    assert report.refusal["reason"]
    assert "Not Recorded:" in str(report) and not report.stays_eager
    compiled = glowplug.compile(f)
    for _ in range(3):
        compiled(torch.ones(2))[0].close()
    assert glowplug.counters()["stats"]["eager_calls"] == 1
    assert glowplug.counters()["refusals"] == {report.refusal["reason"]: 2}
