"""Runs a program eagerly and compiled, each in a namespace of its own, and compares."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import io
import itertools
import linecache
import logging
import math
import operator
import random
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.hooks import RemovableHandle

import glowplug

from .compare import Difference, first_difference
from .known import is_quiet
from .snapshot import Snapshot, address_free

Compile = Callable[[Any], Any]
# Refusals that are faults of Glowplug's whatever the program is.
FAULTS = ("internal_error", "unknown_source")
MOST_CALLS = 20
LOGGER = logging.getLogger("program")


def make_tensor(
    seed: int, *sizes: int, dtype: torch.dtype = torch.float32, grad: bool = False
) -> torch.Tensor:
    """The same random numbers for the same arguments; what programs know as ``T``."""
    made = torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))
    return (made * 2).to(dtype).requires_grad_(grad)


PRELUDE: dict[str, Any] = {
    "torch": torch, "nn": nn, "F": F, "T": make_tensor, "LOG": LOGGER, "collections": collections,
    "contextlib": contextlib, "copy": copy, "dataclasses": dataclasses, "enum": enum,
    "functools": functools, "itertools": itertools, "math": math, "operator": operator,
    "random": random, "sys": sys, "warnings": warnings,
    "weakref": weakref, "gc": gc,
}  # fmt: skip


@dataclass
class Outcome:
    """What came of one program."""

    difference: Difference | None = None
    stats: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    raised: int = 0  # calls that raised
    calls: int = 0
    errors: list[str] = field(default_factory=list)  # types of what eager raised


class Capture(logging.Handler):
    """Log records of the program as text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}:{address_free(record.getMessage())}")


def load(text: str, filename: str, compile_: Compile) -> dict[str, Any]:
    """The program's namespace after its definitions have run."""
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": "program", **PRELUDE, "COMPILED": compile_}
    # Classes look for the module that they are defined in.
    module = sys.modules["program"] = types.ModuleType("program")
    module.__dict__.update(namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, filename, "exec"), module.__dict__)
    return module.__dict__


def observe(text: str, compile_: Compile, filename: str = "<program>") -> list[dict[str, Any]]:
    """What is observed after each call of the program."""
    torch.manual_seed(0)
    random.seed(0)
    RemovableHandle.next_id = 0
    namespace = load(text, filename, compile_)
    target = compile_(namespace["target"])
    kept: list[Any] = []  # results and arguments of earlier calls, which later ones may change
    observed = []
    calls = namespace["calls"]()
    for number in range(MOST_CALLS):
        try:
            args, kwargs = next(calls)
        except StopIteration:
            break
        except Exception as error:  # a change between the calls did not go through
            observed.append({"change": (type(error).__name__, address_free(str(error)))})
            break
        torch.manual_seed(number % 4)
        random.seed(number % 4)
        observed.append(one_call(target, args, kwargs, namespace, kept, filename))
    return observed


def one_call(
    target: Any, args: Any, kwargs: Any, namespace: dict[str, Any], kept: list[Any], filename: str
) -> dict[str, Any]:
    out, err, log = io.StringIO(), io.StringIO(), Capture()
    LOGGER.handlers[:] = [log]
    result, error = None, None
    # What is in a cycle dies here, and nothing of it at a moment that depends on other programs.
    gc.disable()
    gc.collect()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        try:
            result = target(*args, **kwargs)
        except Exception as caught:
            error = caught
    snapshot = Snapshot(filename)
    seen = {
        "exception": snapshot.of(error),
        "random state": (torch.get_rng_state().numpy().tobytes(), random.getstate()),
        "grad mode": torch.is_grad_enabled(),
        "output": address_free(out.getvalue()),
        "error output": address_free(err.getvalue()),
        "log": log.lines,
        "warnings": [
            (w.category.__name__, str(w.message)) for w in warned if not is_quiet(str(w.message))
        ],
    }
    gc.collect()
    if isinstance(result, types.GeneratorType):
        result = drained(result)
    torch.set_grad_enabled(True)
    seen |= {
        "arguments": snapshot.of((args, kwargs)),
        # Not those of other tensors: what a factory made (torch.full, ...) starts at another
        # version at a replay. That is known.
        "versions": [t._version for t in args if isinstance(t, torch.Tensor)],
        "result": snapshot.of(result),
        "state": state(snapshot, namespace),
        "earlier results": snapshot.of(kept[-6:]),
    }
    seen["backward"] = gradients(result, args, kwargs, namespace, filename)
    kept += [result, args]
    return seen


def drained(generator: Any) -> Any:
    try:
        return ("drained", [*itertools.islice(generator, 20)])
    except Exception as error:
        return ("raised", type(error).__name__, str(error))


def state(snapshot: Snapshot, namespace: dict[str, Any]) -> list[Any]:
    """The program's global names: all but what every program has."""
    return [
        (name, snapshot.of(value))
        for name, value in namespace.items()
        if not name.startswith("__") and name != "COMPILED" and PRELUDE.get(name) is not value
    ]


def gradients(
    result: Any, args: Any, kwargs: Any, namespace: dict[str, Any], filename: str
) -> list[Any]:
    """Runs backward from the result, and gives the gradients of all leaves in reach."""
    roots = [t for t in tensors_in(result) if t.requires_grad and t.grad_fn is not None]
    if not roots:
        return []
    error = ""
    try:
        sum((t.float() ** 2).sum() for t in roots).backward()
    except RuntimeError as caught:
        error = str(caught)
    reached = [args, kwargs, [v for k, v in namespace.items() if PRELUDE.get(k) is not v]]
    leaves = [t for t in tensors_in(reached) if t.is_leaf and t.requires_grad]
    snapshot = Snapshot(filename)
    observed: list[Any] = [error, [snapshot.of(t.grad) for t in leaves]]
    for leaf in leaves:
        leaf.grad = None
    return observed


def tensors_in(value: Any, depth: int = 5) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, dict):
        inside = list(value.values())
    elif isinstance(value, (list, tuple, collections.deque)):
        inside = list(value)
    elif isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    else:
        return []
    return [t for v in inside for t in tensors_in(v, depth - 1)]


def check(text: str, compile_: Compile | None = None, audit: bool = False) -> Outcome:
    """Runs the program both ways."""
    options = {"audit": True} if audit else {}
    make = compile_ or (lambda f: glowplug.compile(f, backend="eager", options=options))
    eager = observe(text, lambda f: f)
    glowplug.reset()
    compiled = observe(text, make)
    counted = glowplug.counters()
    outcome = Outcome(first_difference(eager, compiled), counted["stats"], counted["refusals"])
    outcome.calls = len(eager)
    outcome.errors = [
        seen["exception"][1]
        for seen in eager
        if "exception" in seen and seen["exception"][0] != "NoneType"
    ]
    outcome.raised = len(outcome.errors)
    for fault in FAULTS:
        if outcome.difference is None and counted["refusals"].get(fault):
            outcome.difference = Difference(0, f"refusal {fault}", "none", fault)
    glowplug.reset()
    gc.collect()
    return outcome
