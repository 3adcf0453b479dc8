"""Verify mode: compiled calls are compared with the original, and a difference is told."""

import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **kwargs or {})


def test_modes_see_the_program_and_nothing_else():
    def f(x):
        return x.sin() * 2

    compiled, seen = verified(f), []
    for function in (f, compiled, compiled):
        with Names() as names:
            function(torch.ones(2))
        seen.append(names.seen)
    assert seen[0] == seen[1] == seen[2]


def test_an_entry_that_calls_another_in_a_mode():
    def inner(x):
        return x.sin() * 2

    def f(x, inner):
        with Names() as names:
            result = inner(x)
        return result, names.seen

    compiled, compiled_inner = verified(f), verified(inner)
    for _ in range(3):
        assert compiled(torch.ones(2), compiled_inner)[1] == f(torch.ones(2), inner)[1]


def test_refusals_that_were_asked_for_are_no_differences():
    @glowplug.disable
    def outside(x):
        return x + 1

    whole = verified(lambda x: outside(x * 2) * 2, fullgraph=True)
    with pytest.raises(RuntimeError, match="fullgraph=True"):
        whole(torch.ones(2))
    compiled = verified(lambda x: x + 1)
    compiled(torch.ones(2))
    with glowplug.set_stance("fail_on_recompile"):
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(torch.ones(3))


def test_which_of_two_equal_tuples_it_is_does_not_count():
    def f(x, shapes):
        shapes.append(tuple(x.shape))
        return x + 1

    compiled, shapes = verified(f), []
    for _ in range(3):
        compiled(torch.ones(2), shapes)
    assert shapes == [(2,)] * 3


def test_calls_beside_other_threads_are_made_without_the_check():
    barrier = threading.Barrier(2)

    def f(x):
        barrier.wait(30)  # alone it would wait for ever
        return x + 1

    compiled, results = verified(f), []
    threads = [
        threading.Thread(target=lambda: results.append(compiled(torch.ones(2)))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [[2.0, 2.0]] * 2
