"""Counts and times that the engine keeps of everything compiled in this process."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import _C


class Phase(NamedTuple):
    """One phase of compilation: all its runs together."""

    name: str
    seconds: float
    runs: int


@dataclass(frozen=True)
class CompileTimes:
    """Time spent by phase. Iterates over (name, seconds, runs); prints as a table."""

    phases: tuple[Phase, ...]

    def __iter__(self) -> Iterator[Phase]:
        return iter(self.phases)

    def __len__(self) -> int:
        return len(self.phases)

    def since(self, earlier: "CompileTimes") -> "CompileTimes":
        """What was spent after `earlier` was taken; phases that did not run are left out."""
        before = {phase.name: phase for phase in earlier}
        spent = []
        for phase in self.phases:
            seconds, runs = before.get(phase.name, Phase(phase.name, 0.0, 0))[1:]
            spent.append(Phase(phase.name, phase.seconds - seconds, phase.runs - runs))
        return CompileTimes(tuple(phase for phase in spent if phase.runs > 0))

    def __str__(self) -> str:
        width = max([len("phase"), *(len(phase.name) for phase in self.phases)])
        lines = [f"{'phase':<{width}}  {'seconds':>10}  {'runs':>6}"]
        lines += [f"{p.name:<{width}}  {p.seconds:>10.6f}  {p.runs:>6}" for p in self.phases]
        return "\n".join(lines)


def counters() -> dict[str, dict[str, int]]:
    """What has been counted since the start or the last ``reset``.

    ``stats`` counts calls, recordings, unique graphs, forks and more; ``graph_break`` the breaks by
    reason; ``recompiles`` new recordings by the guard that failed; ``refusals`` the callables left
    eager, by reason; ``native`` the operators that no kernel computes, by reason,
    and the bytes that packed weights take just now (``packed_weight_bytes``); ``cache`` what came
    from the disk cache of machine code and what of it was not used (``rejected_*``); ``pool``
    blocks of memory that calls took, anew and again, and the bytes in use and idle just now.
    """
    return _C.counters()


def compile_times() -> CompileTimes:
    """Seconds spent by phase of compilation since the start or the last ``reset``."""
    return CompileTimes(tuple(Phase(*row) for row in _C.compile_times()))


def reset() -> None:
    """Forget every recording, of all compiled callables, and start counting from zero."""
    _C.reset()


def wait() -> None:
    """Return when no compilation is waiting or running in the background."""
    _C.wait()
