"""``glowplug bench``: eager against Glowplug on real models, with the explanation."""

import re
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import glowplug

from . import models
from .measure import Result, measure
from .render import render

DEFAULT_MODELS = ["resnet50"]


def bench(
    model: Annotated[
        list[str] | None,
        typer.Argument(help=f"Models to measure, or 'all'. Known: {', '.join(models.ZOO)}."),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="Measure torch.compile with this backend too, e.g. inductor."),
    ] = None,
    calls: Annotated[int, typer.Option(min=1, help="Calls that a steady figure is taken of.")] = 20,
    threads: Annotated[int, typer.Option(min=0, help="torch's threads; 0 leaves them.")] = 0,
    svg: Annotated[Path | None, typer.Option(help="Write the report as a picture, too.")] = None,
) -> None:
    """Measure first call, steady state, overhead a call and break-even; then explain."""
    names = list(models.ZOO) if model == ["all"] else model or DEFAULT_MODELS
    for name in names:
        if name not in models.ZOO:
            raise typer.BadParameter(f"model {name!r} is unknown; known: {', '.join(models.ZOO)}")
    known = glowplug.list_backends(exclude_tags=()) if compare else []
    for backend in compare or []:
        if backend not in known:
            raise typer.BadParameter(f"backend {backend!r} is unknown; known: {', '.join(known)}")
    if threads:
        torch.set_num_threads(threads)
    console = Console(record=svg is not None, width=100 if svg is not None else None)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {calls} calls")
    for name in names:
        render(console, _measured(name, calls, compare or []))
    if svg is not None:
        svg.write_text(_picture(console, f"glowplug bench {' '.join(names)}"), encoding="utf-8")


def _picture(console: Console, title: str) -> str:
    """What was printed as SVG, in whatever monospace font the reader has: nothing is fetched."""
    return re.sub(r" *@font-face \{.*?\n *\}\n", "", console.export_svg(title=title), flags=re.S)


def _measured(name: str, calls: int, compare: list[str]) -> Result:
    """Measure one model, and show meanwhile, on the error stream, what is being done."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{name}: build")

        def step(what: str) -> None:
            progress.update(task, description=f"{name}: {what}")
            if not console.is_terminal:
                console.print(f"{name}: {what}")

        step("build")
        built = models.build(name)
        glowplug.reset()
        return measure(name, built, calls, compare, step)
