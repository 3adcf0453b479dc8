"""Glowplug as a backend of torch.compile."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import glowplug


@pytest.mark.slow
def test_torch_compile_finds_it_by_name():
    import torch._dynamo

    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4)
    compiled = torch.compile(net, backend="glowplug")
    with torch.no_grad():
        expected = net(x)
        for _ in range(3):
            assert torch.equal(compiled(x), expected)
    stats = glowplug.counters()["stats"]
    assert stats["recordings"] == 1
    assert stats["calls"] == 3


@pytest.mark.slow
def test_torch_compile_trains_with_it():
    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    net(x).sum().backward()
    expected = net.weight.grad.clone()
    net.zero_grad()
    torch.compile(net, backend="glowplug")(x).sum().backward()
    assert torch.equal(net.weight.grad, expected)


def test_importing_glowplug_does_not_import_dynamo():
    script = textwrap.dedent("""
        import sys, glowplug, torch
        glowplug.compile(lambda x: x + 1)(torch.ones(1))
        assert "torch._dynamo" not in sys.modules
        assert "torch._inductor" not in sys.modules
    """)
    subprocess.run([sys.executable, "-c", script], check=True)
