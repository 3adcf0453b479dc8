"""Programs give the same under Glowplug's evaluator (without recording) as under CPython's."""

import gc
import re
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from evaluated_programs import PROGRAMS, program_calls, program_recursion_limit
from glowplug import _C


def evaluated(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function's result, with its frames and those of its callees evaluated by Glowplug."""
    _C.evaluation_counts()
    _C.evaluate_only_start()
    try:
        return function(*args, **kwargs)
    finally:
        _C.evaluate_only_stop()


def plain(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result under CPython's evaluator."""
    return function(*args)


def outcome(run: Callable[..., Any], program: Callable[[], Any]) -> str:
    """What a program gives when run so: the repr of its result, or its traceback from there on."""
    try:
        text = repr(run(program))
    except BaseException as error:
        inside = error.__traceback__
        while inside and inside.tb_frame.f_code is not program.__code__:
            inside = inside.tb_next
        text = "".join(traceback.format_exception(type(error), error, inside))
    return re.sub(r"0x[0-9a-f]+", "0x", text)


@pytest.mark.parametrize("count", [1, 3])
def test_unpack_errors(count: int) -> None:
    def program() -> Any:
        a, b = range(count)
        return a, b

    def starred() -> Any:
        a, b, *c, d = range(count - 1)
        return a, b, c, d

    for each in (program, starred):
        assert outcome(evaluated, each) == outcome(plain, each)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[8:])
def test_same_outcome(program: Callable[[], Any]) -> None:
    assert outcome(evaluated, program) == outcome(plain, program)
    counts = _C.evaluation_counts()
    assert counts["frames"] > 0
    assert counts["delegated"] == 0


# --- models


def small_models() -> Iterator[Any]:
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(0, 100, (2, 12))
    small = dict(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    yield transformers.BertModel(transformers.BertConfig(**small)), {"input_ids": ids}
    yield transformers.LlamaModel(transformers.LlamaConfig(**small)), {"input_ids": ids}
    yield (
        transformers.T5Model(
            transformers.T5Config(
                vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
            )
        ),
        {"input_ids": ids, "decoder_input_ids": ids},
    )
    yield (
        transformers.ResNetModel(
            transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        ),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
    )
    yield (
        transformers.SwinModel(
            transformers.SwinConfig(
                image_size=32, embed_dim=12, depths=[1, 1], num_heads=[2, 2], window_size=4
            )
        ),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
    )


def test_models_to_the_bit() -> None:
    for model, inputs in small_models():
        model.eval()
        expected = model(**inputs)
        got = evaluated(model, **inputs)
        assert type(got) is type(expected)
        assert list(got) == list(expected)
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, got[name]), (type(model).__name__, name)
        assert _C.evaluation_counts()["delegated"] == 0


# --- what evaluation must leave alone


def test_only_while_started() -> None:
    _C.evaluation_counts()
    program_calls()
    assert _C.evaluation_counts()["frames"] == 0


def test_other_threads_are_left_alone() -> None:
    counts = []

    def work() -> None:
        _C.evaluation_counts()
        program_calls()
        counts.append(_C.evaluation_counts()["frames"])

    def start() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    evaluated(start)
    assert counts == [0]


def test_all_threads() -> None:
    counts = []

    def work() -> None:
        program_calls()
        counts.append(_C.evaluation_counts()["frames"])

    _C.evaluate_only_start(True)
    try:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        _C.evaluate_only_stop()
    assert len(counts) == 3
    assert min(counts) > 10


def test_other_threads_get_the_gil() -> None:
    ended = threading.Event()
    threading.Timer(0.05, ended.set).start()

    def spin() -> bool:
        end = time.monotonic() + 20
        while not ended.is_set() and time.monotonic() < end:
            pass
        return ended.is_set()

    assert evaluated(spin)


def test_signals_are_handled() -> None:
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))

    def spin() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        end = time.monotonic() + 20
        while not seen and time.monotonic() < end:
            pass

    try:
        evaluated(spin)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen


def test_tracing_goes_to_the_default_evaluator() -> None:
    lines: list[int] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is traced.__code__:
            lines.append(frame.f_lineno - traced.__code__.co_firstlineno)
            return tracer
        return None

    def traced() -> int:
        a = 1
        return a

    def program() -> None:
        before = sys.gettrace()
        sys.settrace(tracer)
        traced()
        sys.settrace(before)

    evaluated(program)
    counts = _C.evaluation_counts()
    assert lines == [0, 1, 2, 2]
    assert counts["delegated"] > 0


def test_deep_recursion() -> None:
    """As deep as Python's own evaluator goes, which needs no C stack for Python's calls."""

    def deep(n: int) -> int:
        return n and 1 + deep(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    try:
        assert evaluated(deep, 100_000) == 100_000
    finally:
        sys.setrecursionlimit(limit)


def test_objects_die_in_time() -> None:
    class Thing:
        pass

    def program() -> list[bool]:
        thing = Thing()
        reference = weakref.ref(thing)
        alive = [reference() is not None]
        thing = None  # type: ignore[assignment]
        alive.append(reference() is not None)
        reference = weakref.ref(Thing())
        alive.append(reference() is not None)
        return alive

    gc.disable()
    try:
        assert evaluated(program) == [True, False, False]
    finally:
        gc.enable()


def test_memory_stays_flat() -> None:
    def everything() -> None:
        for program in PROGRAMS:
            if program is not program_recursion_limit:
                outcome(plain, program)

    def grown(run: Callable[..., Any], rounds: int) -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(rounds):
            run(everything)
        gc.collect()
        return sys.getallocatedblocks() - before

    for run in (plain, evaluated):
        grown(run, 5)
    # Without us it grows a little too (types, interned strings), now and then by more when a cache
    # of Python's or torch's fills up; an object a round would show each time.
    more = min(grown(evaluated, 40) - grown(plain, 40) for _ in range(4))
    assert more < 40
