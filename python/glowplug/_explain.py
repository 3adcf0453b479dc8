"""``glowplug.explain``: what one recorded call became, and why."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from . import _C
from ._compile import config_of, make_entry, original
from ._counters import CompileTimes, compile_times, wait


@dataclass(frozen=True)
class BreakReason:
    """Why a graph ended before the program did, and where."""

    reason: str
    message: str
    detail: str
    hint: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.reason, self.message, self.detail) if part)
        lines = [f"Reason: {text}", "User Stack:"]
        where = f", in {self.function}" if self.function else ""
        lines.append(f'  File "{self.file}", line {self.line}{where}')
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True)
class GuardInfo:
    """One condition under which the recording holds, and the source line that made it."""

    text: str
    site: str
    kind: str

    def __str__(self) -> str:
        return f"{self.text}  [{self.site}]" if self.site else self.text


@dataclass(frozen=True)
class OperatorFate:
    """What native code makes of one operator: a kernel's part, nothing (removed), or ATen's call.

    Attributes:
        op: name of the ATen operator.
        site: source line.
        kernel: number of the kernel in its recording that computes it; -1 for none.
        packed: oneDNN computes it with a weight packed once.
        attention: a kernel for attention computes it.
        removed: it need not run.
        reason: why ATen runs it; empty otherwise.
    """

    op: str
    site: str
    kernel: int
    packed: bool
    attention: bool
    removed: bool
    reason: str

    def __str__(self) -> str:
        how = f"ATen ({self.reason})"
        if self.kernel >= 0:
            how = f"kernel {self.kernel}"
        elif not self.by_aten:
            how = "packed weight" if self.packed else "left out" if self.removed else "attention"
        return f"{self.op}: {how}  [{self.site}]"

    @property
    def by_aten(self) -> bool:
        """ATen runs it as in tier 1."""
        return self.kernel < 0 and not (self.packed or self.attention or self.removed)


@dataclass(frozen=True)
class Explanation:
    """The report of ``explain``; ``str()`` gives it as text.

    Attributes:
        name: of the callable.
        op_names: names of the ATen operators, a list for each graph.
        break_reasons: one for each break; what keeps the callable eager is the last of them.
        forks: branches on a tensor's value.
        guards: what is checked before a replay.
        record_s: seconds that the recorded call took.
        refusal: why the call was not recorded: {"reason", "message", "hint", "detail"}; None when
            it was.
        stays_eager: whether the callable stays eager for that reason; else another call may be
            recorded, as what a program does at its first call it may not do again.
        times: seconds by phase of this recording.
        traces: the recordings as text.
        native: what native code makes of each operator; empty if there is none.
        kernels: the kernels as loop IR.
        native_failures: why there is no native code after all, for recordings that have none.
    """

    name: str
    op_names: list[list[str]] = field(default_factory=list)
    break_reasons: list[BreakReason] = field(default_factory=list)
    forks: int = 0
    guards: list[GuardInfo] = field(default_factory=list)
    record_s: float = 0.0
    refusal: dict[str, str] | None = None
    stays_eager: bool = False
    times: CompileTimes = field(default_factory=lambda: CompileTimes(()))
    traces: list[str] = field(default_factory=list)
    native: list[OperatorFate] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    native_failures: list[str] = field(default_factory=list)

    @property
    def graph_count(self) -> int:
        """Number of graphs: runs of tensor ops between two breaks."""
        return len(self.op_names)

    @property
    def graph_break_count(self) -> int:
        """Number of breaks."""
        return len(self.break_reasons)

    @property
    def op_count(self) -> int:
        """Number of tensor ops in all graphs."""
        return sum(len(ops) for ops in self.op_names)

    def guards_by_kind(self) -> dict[str, int]:
        """Number of guards of each kind, most first."""
        return _tally(guard.kind for guard in self.guards)

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            f"Fork Count: {self.forks}",
            f"Guard Count: {len(self.guards)}",
        ]
        if self.refusal is not None:
            label = "Stays Eager" if self.stays_eager else "Not Recorded"
            lines.append(f"{label}: {refusal_text(self.refusal)}")
        lines.append("Break Reasons:")
        for number, reason in enumerate(self.break_reasons, 1):
            lines.append(f"  Break Reason {number}:")
            lines += _indented(str(reason), 4)
        lines.append("Ops per Graph:")
        for number, ops in enumerate(self.op_names, 1):
            lines.append(f"  Ops {number}: {len(ops)}")
            lines += [f"    {count:>5} x {op}" for op, count in _tally(ops).items()]
        lines += self._native_lines()
        lines.append("Guards:")
        lines += [f"  {count:>5} x {kind}" for kind, count in self.guards_by_kind().items()]
        lines += [f"    {guard}" for guard in self.guards]
        lines.append(f"Recorded Call: {self.record_s * 1e3:.3f} ms")
        lines.append("Compile Times:")
        lines += _indented(str(self.times), 2)
        return "\n".join(lines)

    def _native_lines(self) -> list[str]:
        if not self.native and not self.native_failures:
            return []
        aten = [fate for fate in self.native if fate.by_aten]
        lines = [
            f"Native Code: {len(self.kernels)} kernels for "
            f"{len(self.native) - len(aten)} of {len(self.native)} operators"
        ]
        lines += [f"  failed: {failure}" for failure in self.native_failures]
        lines += [f"  {fate}" for fate in self.native]
        return lines


def explain(fn: Any) -> Callable[..., Explanation]:
    """Explain what compiling `fn` gives: ``explain(fn)(*args, **kwargs)`` -> Explanation.

    `fn` is called once, for real, with the given arguments and recorded afresh, with the
    configuration it was compiled with (the default one for a callable not compiled yet); what it
    was recorded as before is left alone. What the call returns is dropped; what it raises is
    raised.
    """
    config = config_of(fn)
    model = original(fn)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        entry = make_entry(model, config)
        before = compile_times()
        entry(*args, **kwargs)
        wait()
        return explanation_of(entry, since=before)

    return explained


def explanation_of(entry: _C.Entry, since: CompileTimes) -> Explanation:
    """The explanation of what `entry` has recorded so far; times are those spent after `since`."""
    facts = entry.describe()
    traces = facts["traces"]
    refusal = facts["refused"] if facts["eager"] or not traces else None
    native = [trace["native"] for trace in traces if trace["native"]]
    breaks = [b for trace in traces for b in trace["breaks"]]
    if refusal and (facts["eager"] or facts["breaks"]):
        breaks.append(refusal)
    return Explanation(
        name=facts["name"],
        op_names=[list(ops) for trace in traces for ops in trace["op_names"]],
        break_reasons=[_break_reason(b) for b in breaks],
        forks=sum(trace["forks"] for trace in traces),
        guards=[
            GuardInfo(g["text"], g["site"], g["kind"]) for trace in traces for g in trace["guards"]
        ],
        record_s=sum(trace["record_s"] for trace in traces),
        refusal=refusal,
        stays_eager=facts["eager"],
        times=compile_times().since(since),
        traces=[trace["text"] for trace in traces],
        native=[OperatorFate(**fate) for report in native for fate in _operators(report)],
        kernels=[text for report in native for text in report["kernels"]],
        native_failures=[report["failure"] for report in native if report["failure"]],
    )


def _operators(report: dict[str, Any]) -> list[dict[str, Any]]:
    flags = ("packed", "attention", "removed")
    return [{**fate, **{flag: bool(fate[flag]) for flag in flags}} for fate in report["operators"]]


def refusal_text(refusal: dict[str, str]) -> str:
    """Why an entry was not recorded, in one line."""
    parts = [refusal["reason"], refusal["message"], refusal["detail"]]
    text = ": ".join(part for part in parts if part)
    return f"{text} ({refusal['hint']})" if refusal["hint"] else text


def _break_reason(facts: dict[str, Any]) -> BreakReason:
    return BreakReason(
        reason=facts["reason"],
        message=facts["message"],
        detail=facts["detail"],
        hint=facts["hint"],
        file=facts["file"],
        line=facts["line"],
        function=facts.get("function", ""),
    )


def _tally(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _indented(text: str, columns: int) -> list[str]:
    return [" " * columns + line for line in text.splitlines()]
