"""The report of ``glowplug bench`` as rich tables."""

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import glowplug
from glowplug._explain import refusal_text
from glowplug._profile import COSTS

from .measure import Result, Timing

SHOWN_BREAKS = 5
SHOWN_KINDS = 8


def render(console: Console, result: Result) -> None:
    """Print all that was found out about one model."""
    console.print(_timings(result))
    if result.explanation is not None:
        console.print(_explanation(result.explanation))
    if result.profile is not None:
        console.print(_costs(result.profile))


def duration(seconds: float | None) -> str:
    """Seconds in the unit that reads best."""
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _timings(result: Result) -> RenderableType:
    table = Table(title=result.model, box=box.SIMPLE_HEAD, title_style="bold", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in ("first call", "steady", "speed-up", "overhead", "break-even"):
        table.add_column(column, justify="right", no_wrap=True)
    eager = result.eager
    table.add_row("eager", duration(eager.first_s), duration(eager.steady_s), "1.00 x", "-", "-")
    for timing in result.compiled:
        table.add_row(
            timing.how,
            duration(timing.first_s),
            duration(timing.steady_s),
            f"{eager.steady_s / timing.steady_s:.2f} x",
            duration(timing.overhead_s),
            _break_even(timing),
            style="bold" if timing.how == "glowplug" else None,
        )
    wrong = [timing.how for timing in result.compiled if not timing.equal]
    if wrong:
        return Group(table, Text(f"results differ from eager: {', '.join(wrong)}", style="red"))
    return table


def _break_even(timing: Timing) -> str:
    calls = timing.break_even_calls
    return "never" if calls is None else _times(calls, "call")


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _explanation(facts: glowplug.Explanation) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("graphs", str(facts.graph_count))
    table.add_row("ops", str(facts.op_count))
    table.add_row("breaks", str(facts.graph_break_count))
    for reason in facts.break_reasons[:SHOWN_BREAKS]:
        table.add_row("", Text(str(reason), style="yellow"))
    if facts.graph_break_count > SHOWN_BREAKS:
        table.add_row("", f"and {facts.graph_break_count - SHOWN_BREAKS} more")
    table.add_row("forks", str(facts.forks))
    kinds = list(facts.guards_by_kind().items())
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds[:SHOWN_KINDS])
    table.add_row("guards", f"{len(facts.guards)}" + (f" ({shown})" if shown else ""))
    if facts.refusal is not None:
        label = "stays eager" if facts.stays_eager else "not recorded"
        table.add_row(label, Text(refusal_text(facts.refusal), style="red"))
    for phase in facts.times:
        table.add_row(f"  {phase.name}", f"{duration(phase.seconds)}, {_times(phase.runs, 'run')}")
    return Panel(table, title="what was recorded", title_align="left", box=box.ROUNDED)


def _costs(profile: glowplug.Profile) -> RenderableType:
    report = profile.report()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("cost", "time", "share", "without it"):
        table.add_column(column, justify="left" if column == "cost" else "right")
    for cost in COSTS:
        table.add_row(
            cost,
            duration(report[f"{cost}_s"]),
            f"{report['shares'][cost]:.1%}",
            f"{report['limits'][cost]:.2f} x",
        )
    table.add_row("unaccounted", duration(report["unaccounted_s"]), "", "")
    lines = [
        f"{report['calls']} calls, guard hit rate {report['guard_hit_rate']:.1%}, "
        f"rebuild rate {report['rebuild_rate']:.1%}, compile ratio {report['compile_ratio']:.1%}"
    ]
    lines += [f"rebuilt {count} x: {reason}" for reason, count in report["rebuilds"].items()]
    notes = [Text(f"! {flag}", style="yellow") for flag in report["flags"]]
    return Panel(
        Group(table, *lines, *notes),
        title="where the time went",
        title_align="left",
        box=box.ROUNDED,
    )
