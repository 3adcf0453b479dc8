"""``glowplug.profile``: the costs of compiled calls, from the engine's own events.

The wall clock of a block is split, without rest, into

- *guard*: finding out whether a recording holds,
- *compile*: calls that were recorded while they ran, and compiling that the caller waited for,
- *execute*: replaying, or running the original where it stays eager,
- *outside*: everything that the block did outside compiled calls.

The engine times the first three and the whole of each call apart from each other; what they leave
of the whole is reported as *unaccounted* and stays under a twentieth of it.
"""

import json
import math
import statistics
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _C
from ._compile import original

Event = dict[str, Any]

COSTS = ("guard", "compile", "execute")

# Shares of the time in compiled calls, and of calls, beyond which the report points at a cost.
COMPILE_RATIO_LIMIT = 0.30
HIT_RATE_TARGET = 0.90

# A baseline is the median of at least this many calls, and of as many as fit into this time.
BASELINE_CALLS = 5
BASELINE_SECONDS = 0.5


class Profile:
    """What happened in compiled calls during ``with glowplug.profile() as p``.

    The figures are complete when the block has ended; one object may time several blocks. A
    compiled call made by another one is counted as a call, its time as part of the outer one's.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._fed: list[Event] = []
        self._rebuilds: Counter[str] = Counter()
        self._rebuilds_before: Counter[str] = Counter()
        self._outside_ns = 0
        self._started_ns = 0
        self._eager_s: float | None = None

    def __enter__(self) -> "Profile":
        self._rebuilds_before = Counter(_C.counters()["recompiles"])
        _C.profile_start()
        self._started_ns = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall_ns = time.perf_counter_ns() - self._started_ns
        events = _C.profile_stop()
        self._events += events
        self._rebuilds += Counter(_C.counters()["recompiles"]) - self._rebuilds_before
        self._outside_ns += max(0, wall_ns - sum(e["total_ns"] for e in _outermost(events)))

    def record_forward(
        self,
        *,
        guard_s: float = 0.0,
        compile_s: float = 0.0,
        execute_s: float = 0.0,
        rebuilt: bool = False,
        reason: str = "",
        entry: str = "elsewhere",
    ) -> None:
        """Add one call measured elsewhere: seconds by cost, and whether a graph was made again."""
        guard, compiling, execute = (round(s * 1e9) for s in (guard_s, compile_s, execute_s))
        self._fed.append(
            {
                "entry": entry,
                "kind": "recorded" if compiling else "replayed",
                "start_ns": 0,
                "guard_ns": guard,
                "record_ns": compiling,
                "execute_ns": execute,
                "total_ns": guard + compiling + execute,
                "trace": int(rebuilt),
                "thread": 0,
                "reason": None,
            }
        )
        if rebuilt:
            self._rebuilds[reason or "not said"] += 1

    def baseline(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        """Time `fn` uncompiled on these inputs; the report compares with it. Seconds a call.

        `fn` may be compiled: its original is what runs. It is called several times, for real.
        """
        model = original(fn)
        model(*args, **kwargs)
        times: list[float] = []
        while len(times) < BASELINE_CALLS or (sum(times) < BASELINE_SECONDS and len(times) < 100):
            start = time.perf_counter()
            model(*args, **kwargs)
            times.append(time.perf_counter() - start)
        self._eager_s = statistics.median(times)
        return self._eager_s

    def events(self) -> list[Event]:
        """The calls, in the order in which they ended; times in nanoseconds."""
        return [*self._events, *self._fed]

    def guard_hit_rate(self) -> float:
        """Share of calls that were replayed, of those that could have been.

        A callable's first recording is left out: there was nothing yet to replay. So are calls
        that were to run uncompiled, for what was active around them.
        """
        kinds = Counter(e["kind"] for e in self.events())
        missed = kinds["exited"] + kinds["eager"] + self._rebuilt()
        return _ratio(kinds["replayed"], kinds["replayed"] + missed, empty=1.0)

    def rebuild_rate(self) -> float:
        """Share of calls that were recorded again because no recording held."""
        return _ratio(self._rebuilt(), len(self.events()))

    def compile_ratio(self) -> float:
        """Share of the time in compiled calls that went into recording and compiling."""
        costs = self._costs_s()
        return _ratio(costs["compile"], costs["in_calls"])

    def report(self) -> dict[str, Any]:
        """All figures. Times in seconds, shares as fractions; see the module's documentation.

        ``speed_up`` and ``break_even_calls`` need ``baseline`` and are None without it;
        ``break_even_calls`` is None also where compiling never pays back.
        ``limits`` gives, for each cost, how many times faster calls were without it.
        """
        costs = self._costs_s()
        in_calls = costs["in_calls"]
        shares = {cost: _ratio(costs[cost], in_calls) for cost in COSTS}
        events = self.events()
        steady = self._steady_s()
        return {
            "calls": len(events),
            "kinds": dict(Counter(e["kind"] for e in events)),
            "wall_s": in_calls + self._outside_ns / 1e9,
            "outside_s": self._outside_ns / 1e9,
            "in_calls_s": in_calls,
            **{f"{cost}_s": costs[cost] for cost in COSTS},
            "unaccounted_s": in_calls - sum(costs[cost] for cost in COSTS),
            "shares": shares,
            "limits": {cost: _ratio(1.0, 1.0 - share) for cost, share in shares.items()},
            "guard_hit_rate": self.guard_hit_rate(),
            "rebuild_rate": self.rebuild_rate(),
            "rebuilds": dict(self._rebuilds.most_common()),
            "compile_ratio": self.compile_ratio(),
            "eager_s": self._eager_s,
            "steady_s": steady,
            "speed_up": _ratio(self._eager_s, steady) if self._eager_s and steady else None,
            "break_even_calls": self._break_even(steady),
            "flags": self._flags(),
        }

    def save(self, path: str | Path) -> None:
        """Write the report and the single calls as JSON."""
        text = json.dumps({"report": self.report(), "calls": self.events()}, indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def __str__(self) -> str:
        report = self.report()
        lines = [f"{report['calls']} calls in {report['wall_s'] * 1e3:.3f} ms"]
        for cost in (*COSTS, "unaccounted"):
            seconds = report[f"{cost}_s"]
            share = _ratio(seconds, report["in_calls_s"])
            lines.append(f"  {cost:<12}{seconds * 1e3:>12.3f} ms {share:>7.1%}")
        lines.append(f"  {'outside':<12}{report['outside_s'] * 1e3:>12.3f} ms")
        lines.append(f"guard hit rate {report['guard_hit_rate']:.1%}")
        lines.append(f"rebuild rate   {report['rebuild_rate']:.1%}")
        lines += [f"  {count} x {reason}" for reason, count in report["rebuilds"].items()]
        lines.append(f"compile ratio  {report['compile_ratio']:.1%}")
        if report["speed_up"] is not None:
            calls = report["break_even_calls"]
            lines.append(f"speed-up       {report['speed_up']:.2f} x over eager")
            lines.append(f"break-even     {'never' if calls is None else f'{calls} calls'}")
        lines += [f"! {flag}" for flag in report["flags"]]
        return "\n".join(lines)

    def _costs_s(self) -> dict[str, float]:
        calls = [*_outermost(self._events), *self._fed]
        return {
            "guard": sum(e["guard_ns"] for e in calls) / 1e9,
            "compile": sum(e["record_ns"] for e in calls) / 1e9,
            "execute": sum(e["execute_ns"] for e in calls) / 1e9,
            "in_calls": sum(e["total_ns"] for e in calls) / 1e9,
        }

    def _rebuilt(self) -> int:
        """Recorded calls but the first of each entry, unless that one had traces before, too."""
        recorded = [e for e in self.events() if e["kind"] == "recorded"]
        firsts = {e["entry"] for e in recorded if e["trace"] == 0}
        return len(recorded) - len(firsts)

    def _steady_s(self) -> float | None:
        replays = [e["total_ns"] for e in self.events() if e["kind"] == "replayed"]
        return statistics.median(replays) / 1e9 if replays else None

    def _break_even(self, steady: float | None) -> int | None:
        if self._eager_s is None or steady is None:
            return None
        recorded = [e["total_ns"] / 1e9 for e in self.events() if e["kind"] == "recorded"]
        return break_even(sum(recorded) - len(recorded) * self._eager_s, self._eager_s, steady)

    def _flags(self) -> list[str]:
        flags = []
        if self.compile_ratio() > COMPILE_RATIO_LIMIT:
            flags.append(
                f"compiling took {self.compile_ratio():.0%} of the time in compiled calls "
                f"(more than {COMPILE_RATIO_LIMIT:.0%}): more calls, or fewer rebuilds, would help"
            )
        if self.guard_hit_rate() < HIT_RATE_TARGET:
            flags.append(
                f"{self.guard_hit_rate():.0%} of calls were replayed "
                f"(target {HIT_RATE_TARGET:.0%}): the reasons say what changes"
            )
        return flags


def profile() -> Profile:
    """Measure compiled calls: ``with glowplug.profile() as p: ...``, then ``print(p)``.

    Free when no profile is running. One profile at a time: a second one inside a first takes the
    first one's calls away.
    """
    return Profile()


def break_even(extra_s: float, eager_s: float, steady_s: float) -> int | None:
    """After how many calls compiling has cost less than it saved; None if never.

    `extra_s` is what the recorded calls took beyond eager ones, `eager_s` and `steady_s` are the
    seconds of an eager and of a replayed call. The recorded call counts as the first.
    """
    if extra_s <= 0:
        return 1
    if steady_s >= eager_s:
        return None
    return 1 + math.ceil(extra_s / (eager_s - steady_s))


def _outermost(events: list[Event]) -> list[Event]:
    """The calls that no other call of the same thread was under way in."""
    kept: list[Event] = []
    ends: dict[int, int] = {}
    for event in sorted(events, key=lambda e: (e["start_ns"], -e["total_ns"])):
        thread = event["thread"]
        end = event["start_ns"] + event["total_ns"]
        if end > ends.get(thread, -1):
            kept.append(event)
            ends[thread] = end
    return kept


def _ratio(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole > 0 else empty
