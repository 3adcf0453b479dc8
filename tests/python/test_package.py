"""``pip install .`` gives a package that works away from its sources."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
sys.meta_path = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
sys.path.insert(0, sys.argv[1])
import torch, glowplug
assert glowplug.__file__.startswith(sys.argv[1]), glowplug.__file__
assert glowplug._C.__file__.startswith(sys.argv[1]), glowplug._C.__file__
compiled = glowplug.compile(lambda x: x * 2)
for _ in range(2):
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
assert glowplug.counters()["stats"]["replays"] == 1
"""


@pytest.mark.slow
def test_the_installed_package_works(tmp_path):
    where = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--target", str(where), str(ROOT)], check=True)
    subprocess.run([sys.executable, "-c", SCRIPT, str(where)], check=True, cwd=tmp_path)
    points = next(where.glob("glowplug-*.dist-info")) / "entry_points.txt"
    assert "glowplug._torch_backend:glowplug" in points.read_text()
