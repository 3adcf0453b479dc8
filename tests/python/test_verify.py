"""Verify mode: compiled calls are compared with the original, and a difference is told."""

import pytest
import torch

import glowplug
from glowplug._verify import DifferenceError

SEEN: list[float] = []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        SEEN.append(float(x.sum()))
        print("block", self.calls)
        return {"y": torch.nn.functional.dropout(self.linear(x)), "n": self.calls}


def verified(model, **options):
    return glowplug.compile(model, options={"verify": True}, **options)


def test_equal_calls_pass(capsys):
    SEEN.clear()
    block = verified(Block())
    outputs = [block(torch.randn(2, 4)) for _ in range(3)]
    assert [output["n"] for output in outputs] == [1, 2, 3]
    assert len(SEEN) == 3
    assert capsys.readouterr().out == "block 1\nblock 2\nblock 3\n"


def test_exceptions_are_the_originals():
    def f(x):
        return x @ torch.ones(3)

    compiled = verified(f)
    compiled(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="size mismatch"):
        compiled(torch.ones(2, 5))


def wrong_backend(graph_module, example_inputs):
    def run(*inputs):
        return [output + 1 for output in graph_module(*inputs)]

    return run


def test_a_wrong_result_is_told_with_its_operator_and_line():
    def f(x):
        return [x, (x * 2).relu()]

    compiled = verified(f, backend=wrong_backend)
    compiled(torch.ones(2))  # the recording is the program itself
    with pytest.raises(DifferenceError) as raised:
        compiled(torch.ones(2))
    text = str(raised.value)
    assert "result[1]" in text
    assert "aten::relu" in text
    assert "test_verify.py" in text
