"""Runs CPython test modules in one of four modes.

- plain: by CPython's evaluator, without Glowplug.
- evaluated: by Glowplug's evaluator, without recording.
- recorded: each test method is called twice through an entry of its own, so that it is recorded
  and, where it can be, replayed.
- twice: each test method is called twice, without Glowplug: what recorded is to be compared with
  where a test cannot be repeated.

Tests that wait for ever at a second call, without Glowplug too, are called once in both
("once" in differences.toml).

A server: it reads "mode module" from each line of its input and answers with a line of JSON,
{"by_id": {id: outcome}, "details": {id: text}, "counts": {...}}. Each run has a forked process of
its own, so that a crash or a hang ends only that run, and torch is imported once.
"""

import contextlib
import gc
import io
import json
import logging
import os
import signal
import sys
import tempfile
import time
import tomllib
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (its libraries must be loaded before the extension)

import glowplug
from glowplug import _C

LIMIT = float(os.environ.get("CONFORMANCE_LIMIT", "300"))  # seconds for one run
ROWS = tomllib.loads(Path(__file__).with_name("differences.toml").read_text())
ONCE = {row["test"] for row in ROWS["once"]}


class Outcomes(unittest.TestResult):
    """What became of each test, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, str] = {}
        self.details: dict[str, str] = {}

    def addSuccess(self, test):  # noqa: N802
        self.by_id.setdefault(test.id(), "passed")

    def addFailure(self, test, err):  # noqa: N802
        self.note(test, "failed", err)

    def addError(self, test, err):  # noqa: N802
        self.note(test, "error", err)

    def addSkip(self, test, reason):  # noqa: N802
        self.by_id[test.id()] = "skipped"

    def addExpectedFailure(self, test, err):  # noqa: N802
        self.by_id[test.id()] = "failed as expected"

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self.by_id[test.id()] = "passed unexpectedly"

    def addSubTest(self, test, subtest, err):  # noqa: N802
        if err is not None:
            self.note(test, "failed", err)

    def note(self, test, outcome, err):
        self.by_id[test.id()] = outcome
        self.details[test.id()] = self._exc_info_to_string(err, test)[-4000:]


@contextlib.contextmanager
def calling_methods(compiled: bool) -> Iterator[None]:
    """Test methods are called twice, `compiled` through an entry of their own."""
    before = unittest.TestCase._callTestMethod

    def call(self: unittest.TestCase, method: Callable[[], Any]) -> None:
        entry = glowplug.compile(method) if compiled else method
        if self.id() not in ONCE:
            entry()
        before(self, entry)

    unittest.TestCase._callTestMethod = call
    try:
        yield
    finally:
        unittest.TestCase._callTestMethod = before


def run(module: str, mode: str) -> dict[str, Any]:
    """Run one module here."""
    outcomes = Outcomes()
    with contextlib.ExitStack() as stack:
        if mode == "evaluated":
            _C.evaluate_only_start(True)
            stack.callback(_C.evaluate_only_stop)
        elif mode != "plain":
            stack.enter_context(calling_methods(compiled=mode == "recorded"))
        suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
        suite.run(outcomes)
    counts = _C.counters()["stats"] | _C.evaluation_counts()
    return {"by_id": outcomes.by_id, "details": outcomes.details, "counts": counts}


def run_apart(module: str, mode: str) -> dict[str, Any]:
    """Run one module in a forked process, with its output thrown away."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory, "answer.json")
        child = os.fork()
        if child == 0:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            sys.stdin = open(0, closefd=False)
            os.chdir(directory)
            answer.write_text(json.dumps(run(module, mode)))
            os._exit(0)
        status = wait(child)
        if answer.exists():
            return json.loads(answer.read_text())
        return {"by_id": {}, "details": {"": f"the run ended with {status}"}, "counts": {}}


def wait(child: int) -> str:
    """How the child ended; one that takes too long is killed, with what it has started."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "a timeout"


def main() -> None:
    """Serve until the input ends."""
    # Why an entry stays eager is not for the tests that look at what is logged.
    logging.getLogger("glowplug").setLevel(logging.CRITICAL)
    gc.freeze()  # the tests collect often; torch's objects need not be looked at each time
    answers = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), line_buffering=True)
    for line in sys.stdin:
        mode, module = line.split()
        answers.write(json.dumps(run_apart(module, mode)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
