"""Verify mode: compiled calls are compared with the original, and a difference is told."""

import math
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import glowplug
from glowplug import _C, _verify
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


def fused(x, s):
    y = torch.softmax(x * s, -1)
    return y.log() * 2, y.argmax(-1), float(y.sum())


def test_native_code_need_only_be_close():
    compiled = verified_native(fused)
    with torch.no_grad():
        for seed in range(4):
            torch.manual_seed(seed)
            compiled(torch.randn(16, 33), torch.randn(33))
    counted = glowplug.counters()["stats"]
    assert counted["ops_native"] > 0 and counted["replays"] == 3


def verified_native(program, **options):
    return glowplug.compile(program, options={"verify": True, "native": True, **options})


def test_what_native_code_does_too_inexactly_is_told_with_its_kernel(monkeypatch):
    def program(x):
        return (x * 2 + 1).relu()

    compiled, close = verified_native(program, verify_digits=6), verified_native(program)
    x = torch.randn(8, 8)
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
            close(x)
        # A result that is a little off, as if the kernel had made it.
        real = _C.call_unverified
        monkeypatch.setattr(_C, "call_unverified", lambda *args: real(*args) * (1 + 1e-5))
        with pytest.raises(DifferenceError) as raised:
            compiled(x)
        text = str(raised.value)
        assert "by more than a relative 1e-06" in text
        assert "aten::relu" in text and "in kernel 0:\nkernel fused_" in text
        close(x)  # the default has four digits


def test_without_kernels_results_are_equal_to_the_bit(monkeypatch):
    compiled = verified_native(lambda x: x @ x.t())
    x = torch.randn(4, 4)
    with torch.no_grad():
        compiled(x)
        real = _C.call_unverified
        monkeypatch.setattr(_C, "call_unverified", lambda *args: real(*args) * (1 + 1e-6))
        with pytest.raises(DifferenceError, match=r"differs from the original at result\.data\n"):
            compiled(x)


@pytest.mark.parametrize(
    ("expected", "found", "close"),
    [
        (1.0, 1.00001, True),
        (1.0, 1.001, False),
        (math.nan, math.nan, True),
        (torch.tensor([1.0, 1e-7]), torch.tensor([1.0, -1e-7]), True),
        (torch.tensor([1e-7, 1e-7]), torch.tensor([1e-7, -1e-7]), False),
        (torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, math.inf]), True),
        (torch.tensor([math.nan, 1.0]), torch.tensor([1.0, math.nan]), False),
        (torch.tensor([math.inf, 1.0]), torch.tensor([-math.inf, 1.0]), False),
        (torch.ones(2), torch.ones(3), False),
        (torch.ones(0), torch.ones(0), True),
    ],
)
def test_what_close_means(expected, found, close):
    assert _verify._is_close(expected, found, 1e-4) is close
