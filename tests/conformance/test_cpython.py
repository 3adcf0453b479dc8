"""CPython's own tests give under Glowplug's evaluator, and recorded, what they give without it."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def modules(mode: str) -> Iterator[object]:
    """The modules of the list, with pytest's marks for `mode`."""
    for line in (HERE / "cpython_modules.txt").read_text().splitlines():
        name, *words = line.split("#")[0].split() or [""]
        if name:
            marks = [pytest.mark.slow] if {"slow", f"slow-{mode}"} & {*words} else []
            yield pytest.param(name, marks=marks)


def allowed_differences(mode: str) -> dict[str, str]:
    rows = tomllib.loads((HERE / "differences.toml").read_text()).get("difference", [])
    return {row["test"]: row["reason"] for row in rows if mode in row["modes"]}


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

        self.plain: dict[str, dict] = {}

    def run(self, mode: str, module: str) -> dict[str, dict]:
        if mode == "plain" and module in self.plain:
            return self.plain[module]
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{mode} {module}\n")
        self.process.stdin.flush()
        text = self.process.stdout.readline()
        assert text, "the runner has died"
        answer = json.loads(text)
        if mode == "plain":
            self.plain[module] = answer
        assert answer["by_id"], f"{module} did not run {mode}: {answer['details']}"
        return answer

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.close()


def differences(expected: dict[str, dict], got: dict[str, dict]) -> dict[str, str]:
    """What came out differently, by the test's id."""
    before, after = expected["by_id"], got["by_id"]
    details = expected["details"] | got["details"]
    return {
        name: f"{name}: {before.get(name)} -> {after.get(name)}\n{details.get(name, '')}"
        for name in sorted(before | after)
        if before.get(name) != after.get(name)
    }


def check(found: dict[str, str], module: str, mode: str) -> None:
    allowed = {name for name in allowed_differences(mode) if name.startswith(f"test.{module}.")}
    assert not found.keys() - allowed, "\n".join(found[n] for n in found if n not in allowed)
    assert not allowed - found.keys(), f"no longer different: {sorted(allowed - found.keys())}"


@pytest.mark.parametrize("module", list(modules("evaluated")))
def test_evaluated(runner: Runner, module: str) -> None:
    found = differences(runner.run("plain", module), runner.run("evaluated", module))
    check(found, module, "evaluated")


@pytest.mark.parametrize("module", list(modules("recorded")))
def test_recorded(runner: Runner, module: str) -> None:
    recorded = runner.run("recorded", module)
    found = differences(runner.run("plain", module), recorded)
    if found:
        found = differences(runner.run("twice", module), recorded)
    check(found, module, "recorded")


def test_frames_are_evaluated(runner: Runner) -> None:
    """The runs above are not those of CPython's evaluator by accident."""
    counts = runner.run("evaluated", "test_grammar")["counts"]
    assert counts["frames"] > 1000
    assert counts["instructions"] > 10000
    assert counts["delegated"] == 0


def test_methods_are_recorded(runner: Runner) -> None:
    """Some of the methods run above can be recorded to the end, and are replayed."""
    counts = runner.run("recorded", "test_grammar")["counts"]
    assert counts["calls"] >= 2 * len(runner.run("plain", "test_grammar")["by_id"]) - 20
    assert counts["recordings"] > 0
    assert counts["replays"] > 0
