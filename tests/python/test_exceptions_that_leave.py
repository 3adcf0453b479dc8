"""Exceptions that a call makes and hands out are eager's: causes, contexts, notes, tracebacks."""

import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug

Program = Callable[[torch.Tensor], Any]


def with_a_cause(x: torch.Tensor) -> Any:
    error = ValueError("v")
    error.__cause__ = KeyError("k")
    error.add_note("n")
    return error, x * 2


def with_a_hidden_context(x: torch.Tensor) -> Any:
    error = ValueError("v")
    error.__context__ = KeyError("c")
    error.__suppress_context__ = True
    return error, x * 2


def with_a_cause_that_is_shown(x: torch.Tensor) -> Any:
    error = ValueError("v")
    error.__cause__ = error.__context__ = KeyError("c")
    error.__suppress_context__ = False
    return error, x * 2


def without_a_traceback(x: torch.Tensor) -> Any:
    return ValueError("v").with_traceback(None), x * 2


def raised(x: torch.Tensor) -> Any:
    try:
        try:
            raise ZeroDivisionError("zero")
        except ZeroDivisionError as error:
            raise KeyError("key") from error
    except KeyError as error:
        return error, x * 2


def raised_and_cleaned(x: torch.Tensor) -> Any:
    try:
        raise KeyError("key")
    except KeyError as error:
        return error.with_traceback(None), x * 2


def told(error: BaseException | None) -> Any:
    if error is None:
        return None
    lines = [(at.name, at.line) for at in traceback.extract_tb(error.__traceback__)]
    return (
        type(error),
        error.args,
        vars(error),
        error.__suppress_context__,
        [line for line in lines if line[0] != "run"],
        told(error.__cause__),
        told(error.__context__),
    )


@pytest.mark.parametrize(
    ("program", "replays"),
    [
        (with_a_cause, 3),
        (with_a_hidden_context, 3),
        (with_a_cause_that_is_shown, 3),
        (without_a_traceback, 3),
        (raised, 0),
        (raised_and_cleaned, 3),
    ],
)
def test_as_eager(program: Program, replays: int) -> None:
    compiled = glowplug.compile(program)
    expected = told(program(torch.ones(2))[0])
    for _ in range(4):
        assert told(compiled(torch.ones(2))[0]) == expected
    assert glowplug.counters()["stats"]["replays"] == replays


@pytest.mark.parametrize("expression", ["n % 0", "n // 0", "n < 'a'", "~n.real + 1 / 0", "n << -1"])
def test_the_first_operator_of_a_process_raises(expression: str) -> None:
    """What the recorder looks up for an operator it has looked up before the operator raises."""
    code = f"""
import torch, glowplug
def f(x):
    n = int((x > 0).sum())
    return {expression}
for g in (f, glowplug.compile(f)):
    try:
        g(torch.ones(3))
    except Exception as error:
        print(type(error).__name__, error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    eager, compiled = run.stdout.splitlines()
    assert compiled == eager
