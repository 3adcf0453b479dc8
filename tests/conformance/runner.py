"""Runs CPython test modules, each twice: under CPython's evaluator and under Glowplug's.

A server: it reads a module's name from each line of its input and answers with a line of JSON,
{"plain": {id: outcome}, "evaluated": {id: outcome}, "counts": {...}}. Each run has a forked process
of its own, so that a crash or a hang ends only that run, and torch is imported once.
"""

import contextlib
import gc
import io
import json
import os
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (its libraries must be loaded before the extension)

from glowplug import _C

LIMIT = 300.0  # seconds for one run


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


def run(module: str, evaluated: bool) -> dict[str, Any]:
    """Run one module here."""
    outcomes = Outcomes()
    if evaluated:
        _C.evaluate_only_start(True)
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    suite.run(outcomes)
    if evaluated:
        _C.evaluate_only_stop()
    return {"by_id": outcomes.by_id, "details": outcomes.details, "counts": _C.evaluation_counts()}


def run_apart(module: str, evaluated: bool) -> dict[str, Any]:
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
            answer.write_text(json.dumps(run(module, evaluated)))
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
    gc.freeze()  # the tests collect often; torch's objects need not be looked at each time
    answers = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), line_buffering=True)
    for line in sys.stdin:
        module = line.strip()
        plain, evaluated = run_apart(module, False), run_apart(module, True)
        answers.write(json.dumps({"plain": plain, "evaluated": evaluated}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
