"""The disk cache of machine code, from process to process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glowplug

PROGRAM = """
import json, sys, torch, glowplug

def program(x, s):
    y = torch.softmax(x * s, -1)
    return (y + 1).log() * torch.tanh(x)

compiled = glowplug.compile(program, options={"native": True})
x, s = torch.randn(8, 33), torch.randn(33)
with torch.no_grad():
    compiled(x, s)
    glowplug.wait()
    close = torch.allclose(compiled(x, s), program(x, s), rtol=1e-5, atol=1e-6)
counted = glowplug.counters()
print(json.dumps({"close": close, **counted["cache"], **counted["stats"]}))
"""

Run = Callable[..., tuple[dict[str, Any], list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A process with that cache: what it counted, and its lines on stderr."""

    def start(**environment: str) -> tuple[dict[str, Any], list[str]]:
        unset = [name for name in os.environ if name.startswith("GLOWPLUG_")]
        clean = {name: value for name, value in os.environ.items() if name not in unset}
        clean |= {"GLOWPLUG_CACHE_DIR": str(tmp_path / "cache"), **environment}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=clean
        )
        counted = json.loads(done.stdout.splitlines()[-1])
        assert counted["close"]
        return counted, [line for line in done.stderr.splitlines() if "glowplug" in line]

    return start


def test_a_warm_process_compiles_nothing(run: Run, tmp_path: Path) -> None:
    cold, said = run()
    assert not said
    assert cold["kernels_compiled"] == cold["writes"] == cold["misses"] > 0
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    warm, said = run()
    assert not said
    assert warm["kernels_compiled"] == warm["writes"] == warm["misses"] == 0
    assert warm["hits"] == warm["kernels_loaded"] == cold["writes"]


def test_damaged_files_are_replaced(run: Run, tmp_path: Path) -> None:
    cold, _ = run()
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    again, said = run()
    assert again["rejected"] == again["rejected_file_size"] == again["writes"] == cold["writes"]
    assert again["kernels_compiled"] == cold["kernels_compiled"]
    assert len(said) == 1 and "cut off" in said[0]
    assert run()[0]["hits"] == cold["writes"]


def test_a_directory_for_everybody_is_not_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    counted, said = run()
    assert counted["rejected_directory_open"] == 1 and counted["hits"] == counted["writes"] == 0
    assert len(said) == 1 and "others may write" in said[0]
    assert not list((tmp_path / "cache").iterdir())


def test_it_can_be_switched_off_and_be_elsewhere(run: Run, tmp_path: Path) -> None:
    off, said = run(GLOWPLUG_CACHE="0")
    assert off["kernels_compiled"] > 0 and off["misses"] == 0
    assert not (tmp_path / "cache").exists() and not said
    run(GLOWPLUG_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert list((tmp_path / "xdg" / "glowplug").iterdir())
    _, said = run(GLOWPLUG_CACHE_SIZE="plenty")
    assert len(said) == 1 and "plenty" in said[0]


def test_reset_starts_counting_anew() -> None:
    glowplug.reset()
    counted = glowplug.counters()["cache"]
    assert counted == {"hits": 0, "misses": 0, "writes": 0, "evicted": 0, "rejected": 0}


def test_debuggers_are_told_on_request(run: Run, tmp_path: Path) -> None:
    _, said = run(GLOWPLUG_TELL="perf,gdb", JITDUMPDIR=str(tmp_path / "perf"))
    assert not said
    dumps = [path for path in (tmp_path / "perf").rglob("*.dump") if path.is_file()]
    assert len(dumps) == 1 and b"warm_up.0" in dumps[0].read_bytes()
    _, said = run(GLOWPLUG_TELL="valgrind")
    assert len(said) == 1 and "known are gdb and perf" in said[0]
