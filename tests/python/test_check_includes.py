"""scripts/check_includes.py names each kind of breach, and the tree as it is has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_includes.py"


def run(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree that keeps every rule."""
    write(tmp_path, "src/common/ids.h", "#pragma once\n#include <vector>\n")
    write(tmp_path, "src/ir/trace.h", '#include "common/ids.h"\n')
    write(tmp_path, "src/ir/kinds.def", "KIND(a)\n")
    write(tmp_path, "src/aten/torch.h", "#include <ATen/ATen.h>\n")
    write(
        tmp_path,
        "src/aten/op.cpp",
        '#include <c10/core/Device.h>\n#include "aten/torch.h"\n#include "ir/trace.h"\n',
    )
    write(
        tmp_path,
        "src/cpython/frame.cpp",
        "#include <internal/pycore_frame.h>\n#if PY_MINOR_VERSION == 11\n#endif\n",
    )
    write(tmp_path, "src/codegen/emit.cpp", "#include <llvm/IR/IRBuilder.h>\n")
    write(tmp_path, "src/trace/use.cpp", '#include <Python.h>\n#include "ir/kinds.def"\n')
    write(tmp_path, "src/engine/entry.cpp", '#include "trace/use.h"\n#include "ir/trace.h"\n')
    write(tmp_path, "src/trace/use.h", "")
    return tmp_path


def test_good_tree(tree: Path) -> None:
    assert run(tree) == (0, "")


def test_this_project() -> None:
    code, output = run(ROOT)
    assert (code, output) == (0, "")


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (
            "src/common/log.h",
            '#include "ir/trace.h"\n',
            'common/ may not include "ir/trace.h" (it may include nothing else)',
        ),
        (
            "src/ir/bad.cpp",
            '\n\n  #  include "aten/torch.h"\n',
            'ir/ may not include "aten/torch.h" (it may include common)',
        ),
        (
            "src/ir/bad.cpp",
            '#include "trace.h"\n',
            '"trace.h" is not written from src/, as "folder/file.h"',
        ),
        ("src/ir/bad.cpp", '#include "ir/gone.h"\n', '"ir/gone.h" does not exist'),
        (
            "src/ir/bad.cpp",
            "#include <common/ids.h>\n",
            "own header <common/ids.h> must be in quotes",
        ),
        ("src/ir/bad.cpp", "#include <Python.h>\n", "Python.h in ir/, which builds without Python"),
        (
            "src/aten/bad.h",
            "#include <torch/torch.h>\n",
            "torch header <torch/torch.h> outside aten/*.cpp and aten/torch.h",
        ),
        (
            "src/guard/bad.cpp",
            "#include <ATen/ATen.h>\n",
            "torch header <ATen/ATen.h> outside aten/*.cpp and aten/torch.h",
        ),
        (
            "src/guard/bad.cpp",
            '#include "c10/core/Device.h"\n',
            "torch header <c10/core/Device.h> outside aten/*.cpp and aten/torch.h",
        ),
        (
            "src/trace/bad.cpp",
            '#include "internal/pycore_frame.h"\n',
            "internal Python header <internal/pycore_frame.h> outside cpython/",
        ),
        (
            "src/trace/bad.cpp",
            "#if PY_VERSION_HEX >= 0x030c0000\n#endif\n",
            "test of the Python version outside cpython/",
        ),
        (
            "src/lower/bad.cpp",
            "#include <llvm/IR/IRBuilder.h>\n",
            "LLVM header <llvm/IR/IRBuilder.h> outside codegen/",
        ),
        ("src/misc/bad.cpp", "", "not in a folder of the map"),
        ("src/bad.cpp", "", "not in a folder of the map"),
    ],
)
def test_breach_is_named(tree: Path, path: str, text: str, message: str) -> None:
    write(tree, path, text)
    code, output = run(tree)
    line = 1 + text.partition("#")[0].count("\n")
    assert (code, output) == (1, f"{path}:{line}: {message}\n")


@pytest.mark.parametrize("path", ["src/ir/long.cpp", "tests/unit/long_test.cpp"])
def test_long_file(tree: Path, path: str) -> None:
    write(tree, path, "\n" * 599)
    assert run(tree) == (0, "")
    write(tree, path, "\n" * 600)
    assert run(tree) == (1, f"{path}:600: 600 lines; files stay under 600\n")


def test_missing_tree(tmp_path: Path) -> None:
    assert run(tmp_path)[0] == 1
