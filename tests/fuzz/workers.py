"""Runs programs in forked processes: a crash or a hang is a failure with its seed."""

import collections
import gc
import importlib
import logging
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from .compare import Difference
from .generator import program
from .run import Outcome, check

SECONDS_A_PROGRAM = 20
BATCH = 50
AUDITED = 8  # one program in so many runs with the provenance audit


@dataclass
class Failure:
    """A program for which compiled differs from eager, or which ended its process."""

    seed: int
    difference: Difference

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.difference}\n"
            f"  reproduce and shrink: python -m tests.fuzz --seed {self.seed} --count 1 --shrink"
        )


@dataclass
class Summary:
    """What many programs came to."""

    programs: int = 0
    stats: collections.Counter[str] = field(default_factory=collections.Counter)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, seed: int, outcome: Outcome) -> None:
        self.programs += 1
        self.stats.update(outcome.stats)
        self.stats["raised"] += outcome.raised
        self.refusals.update(outcome.refusals)
        if outcome.difference is not None:
            self.failures.append(Failure(seed, outcome.difference))

    @property
    def replayed(self) -> float:
        """The share of calls that were replays."""
        return self.stats["replays"] / max(1, self.stats["calls"])

    def __str__(self) -> str:
        s = self.stats
        calls = max(1, s["calls"])
        refused = ", ".join(f"{k} {v}" for k, v in self.refusals.most_common(8))
        return (
            f"{self.programs} programs in {self.seconds:.0f} s, {s['calls']} calls: "
            f"{s['replays'] / calls:.0%} replayed, {s['recordings'] / calls:.0%} recorded, "
            f"{s['eager_calls'] / calls:.0%} eager, {s['raised'] / calls:.0%} raised; "
            f"{s['forks']} forks, {s['side_exits']} side exits, "
            f"{s['guard_failures']} guard failures\n"
            f"refusals: {refused}\n{len(self.failures)} failures"
        )


def run_seeds(
    seeds: list[int],
    keep_going: bool = True,
    on_failure: Callable[[Failure], None] = lambda failure: None,
) -> Summary:
    """All programs of `seeds`, a batch of them in one process."""
    quiet()
    summary = Summary()
    start = time.monotonic()
    for first in range(0, len(seeds), BATCH):
        for seed, outcome in batch(seeds[first : first + BATCH]):
            summary.add(seed, outcome)
            if outcome.difference is not None:
                on_failure(summary.failures[-1])
        if summary.failures and not keep_going:
            break
    summary.seconds = time.monotonic() - start
    return summary


def quiet() -> None:
    """One thread, no word about what stays eager, and everything imported before the forks."""
    # Operators import these when they are first used: seconds in each process otherwise.
    for name in (
        "torch._dynamo",
        "torch._functorch.apis",
        "torch.utils.checkpoint",
        "unittest.mock",
    ):
        importlib.import_module(name)
    torch.set_num_threads(1)
    torch.set_warn_always(True)
    logging.getLogger("glowplug").setLevel(logging.CRITICAL)


def batch(seeds: list[int]) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of the seeds; after the end of a process the rest goes on in another."""
    left = list(seeds)
    while left:
        texts = [program(seed) for seed in left]
        audits = [seed % AUDITED == 0 for seed in left]
        for outcome in outcomes(texts, audits):
            yield left.pop(0), outcome


def outcomes(texts: list[str], audits: list[bool]) -> Iterator[Outcome]:
    """Outcomes of programs run in one forked process; the last may be that it ended early."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        work(texts, audits, writer)
    os.close(writer)
    count = 0
    with os.fdopen(reader, "rb") as stream:
        while header := stream.read(4):
            payload = stream.read(struct.unpack("I", header)[0])
            count += 1
            yield pickle.loads(payload)
    _, status = os.waitpid(child, 0)
    if status != 0 and count < len(texts):
        yield Outcome(Difference(0, "process", "goes on", ended(status)))


def work(texts: list[str], audits: list[bool], writer: int) -> None:
    """The forked process: never returns."""
    gc.collect()
    gc.freeze()  # so that collections are quick
    modules = len(sys.modules)
    for text, audit in zip(texts, audits):
        if len(sys.modules) > modules:
            modules = len(sys.modules)
            gc.freeze()
        signal.alarm(SECONDS_A_PROGRAM)
        try:
            outcome = check(text, audit=audit)
        except Exception as error:
            outcome = Outcome(Difference(0, f"check {type(error).__name__}", "runs", str(error)))
        payload = pickle.dumps(outcome)
        os.write(writer, struct.pack("I", len(payload)) + payload)
    os._exit(0)


def ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "hangs" if number == signal.SIGALRM else signal.Signals(number).name
    return f"exit status {os.WEXITSTATUS(status)}"


def outcome_of(text: str, audit: bool = False) -> Outcome:
    """What comes of one program, in a process of its own."""
    return next(outcomes([text], [audit]))


def keeps_failing(text: str, audit: bool = False) -> Callable[[str], bool]:
    """A predicate: does another program fail in the way that this one does?"""
    first = outcome_of(text, audit)
    assert first.difference is not None
    known, kind = set(first.errors), first.difference.kind

    def fails(other: str) -> bool:
        outcome = outcome_of(other, audit)
        # Edits that only break the program are of no use: no error that was not there before.
        return (
            outcome.difference is not None
            and outcome.difference.kind == kind
            and set(outcome.errors) <= known
        )

    return fails
