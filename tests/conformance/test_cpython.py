"""CPython's own tests give under Glowplug's evaluator what they give without it."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def modules() -> Iterator[object]:
    for line in (HERE / "cpython_modules.txt").read_text().splitlines():
        name, *marks = line.split("#")[0].split() or [""]
        if name:
            yield pytest.param(name, marks=[pytest.mark.slow] if "slow" in marks else [])


def allowed_differences() -> dict[str, str]:
    rows = tomllib.loads((HERE / "differences.toml").read_text()).get("difference", [])
    return {row["test"]: row["reason"] for row in rows}


class Runner:
    """A process that runs modules (runner.py)."""

    def __init__(self) -> None:
        environment = dict(os.environ, PYTHONHASHSEED="0")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "runner.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, module: str) -> dict[str, dict]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(module + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the runner has died"
        return json.loads(answer)

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.close()


def describe(name: str, plain: str | None, evaluated: str | None, details: dict[str, str]) -> str:
    return f"{name}: {plain} -> {evaluated}\n{details.get(name, '')}"


@pytest.mark.parametrize("module", list(modules()))
def test_same_outcomes(runner: Runner, module: str) -> None:
    answer = runner.run(module)
    plain, evaluated = answer["plain"]["by_id"], answer["evaluated"]["by_id"]
    details = answer["plain"]["details"] | answer["evaluated"]["details"]
    assert plain, f"{module} did not run: {answer['plain']['details']}"
    assert evaluated, f"{module} did not run when evaluated: {answer['evaluated']['details']}"
    differing = {name for name in plain | evaluated if plain.get(name) != evaluated.get(name)}
    allowed = {name for name in allowed_differences() if name.startswith(f"test.{module}.")}
    assert not differing - allowed, "\n".join(
        describe(name, plain.get(name), evaluated.get(name), details)
        for name in sorted(differing - allowed)
    )
    assert not allowed - differing, f"no longer different: {sorted(allowed - differing)}"


def test_frames_are_evaluated(runner: Runner) -> None:
    """The runs above are not those of CPython's evaluator by accident."""
    counts = runner.run("test_grammar")["evaluated"]["counts"]
    assert counts["frames"] > 1000
    assert counts["instructions"] > 10000
    assert counts["delegated"] == 0
