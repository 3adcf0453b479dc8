"""Built-ins that look at the frame or the exception of their caller."""

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug


def evaluated(x: torch.Tensor) -> Any:
    local = 3
    return x + local, eval("local + 1")


def executed(x: torch.Tensor) -> Any:
    names = {"a": 1}
    exec("b = a + 1", names)
    return x + 1, names["b"]


def executed_in_place(x: torch.Tensor) -> Any:
    local = 3
    exec("local = 4")
    return x + local, local


def all_locals(x: torch.Tensor) -> Any:
    local = 3
    return x + local, sorted(locals())


def values_of_locals(x: torch.Tensor) -> Any:
    local = 3
    return x + local, locals()["local"]


def all_vars(x: torch.Tensor) -> Any:
    local = 3
    return x + local, sorted(vars())


def names(x: torch.Tensor) -> Any:
    local = 3
    return x + local, dir()


def all_globals(x: torch.Tensor) -> Any:
    return x + 1, globals() is sys.modules[__name__].__dict__


def code_name(x: torch.Tensor) -> Any:
    return x + 1, sys._getframe().f_code.co_name


def current_line(x: torch.Tensor) -> Any:
    frame = inspect.currentframe()
    return x + 1, frame.f_lineno if frame else None


def caught(x: torch.Tensor) -> Any:
    try:
        raise KeyError("mine")
    except KeyError:
        return x + 1, repr(sys.exc_info()[1]), sys.exc_info()[0]


def formatted(x: torch.Tensor) -> Any:
    try:
        raise KeyError("mine")
    except KeyError:
        return x + 1, traceback.format_exc()


def no_exception(x: torch.Tensor) -> Any:
    return x + 1, sys.exc_info()


def made_classes(x: torch.Tensor) -> Any:
    return x + 1, type("Made", (), {}).__module__


def imported(x: torch.Tensor) -> Any:
    return x + 1, __import__("os.path").__name__


def called_by_name(x: torch.Tensor) -> Any:
    local = 3
    look = locals
    return x + local, sorted(look())


PROGRAMS = [
    evaluated,
    executed,
    executed_in_place,
    all_locals,
    values_of_locals,
    all_vars,
    names,
    all_globals,
    code_name,
    current_line,
    caught,
    formatted,
    no_exception,
    made_classes,
    imported,
    called_by_name,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_looks_at_the_frame(program: Callable[..., Any], same: Any) -> None:
    compiled, x = glowplug.compile(program), torch.ones(2)
    for _ in range(3):
        same(program(x), compiled(x))
