"""The ``glowplug`` command."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from glowplug.cli import app

runner = CliRunner()


def test_bench_prints_figures_and_explanation(tmp_path):
    picture = tmp_path / "report.svg"
    result = runner.invoke(app, ["bench", "mlp24", "--calls", "3", "--svg", str(picture)])
    assert result.exit_code == 0, result.output
    for word in ("first call", "steady", "overhead", "break-even", "glowplug", "eager"):
        assert word in result.output
    for word in ("graphs", "breaks", "guards", "compile", "execute", "guard hit rate"):
        assert word in result.output
    assert "differ from eager" not in result.output
    assert picture.read_text().startswith("<svg")
    assert "url(" not in picture.read_text().replace("url(#", "")


@pytest.mark.parametrize(
    "arguments",
    [["nosuchmodel"], ["mlp24", "--compare", "nosuchbackend"]],
    ids=["model", "backend"],
)
def test_unknown_names_are_named_with_the_known(arguments):
    result = runner.invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert "is unknown" in result.output
    assert "nosuch" in result.output


@pytest.mark.slow
def test_bench_compares_with_torch_compile():
    result = runner.invoke(app, ["bench", "mlp24", "--calls", "2", "--compare", "inductor"])
    assert result.exit_code == 0, result.output
    assert "torch (inductor)" in result.output


def test_module_runs_as_a_command():
    run = subprocess.run(
        [sys.executable, "-m", "glowplug", "--help"], capture_output=True, text=True, check=True
    )
    assert "bench" in run.stdout
