"""The ``glowplug`` command."""

import typer

from .bench import bench

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Glowplug: a just-in-time compiler for PyTorch programs.",
)
app.command()(bench)


@app.callback()
def _group() -> None:
    """Make `bench` a named command although it is the only one."""


def main() -> None:
    """Run the command line."""
    app()
