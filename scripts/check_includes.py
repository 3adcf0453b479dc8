#!/usr/bin/env python3
"""Checks that src/ keeps to its map: who includes whom, where foreign headers live, file lengths.

Usage: check_includes.py [ROOT]. Prints "path:line: message" for each finding; exits 1 if any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Folder of src/ -> folders it may include, besides itself.
ALLOWED: dict[str, set[str]] = {
    "common": set(),
    "cpython": {"common"},
    "ir": {"common"},
    "aten": {"ir", "common"},
    "trace": {"ir", "cpython", "aten", "common"},
    "guard": {"ir", "cpython", "aten", "common"},
    "replay": {"ir", "guard", "cpython", "aten", "common"},
    "opt": {"ir", "common"},
    "lower": {"ir", "opt", "common"},
    "codegen": {"lower", "ir", "common"},
    "cache": {"common"},
    "insight": {"common", "ir"},
}
ALLOWED["engine"] = set(ALLOWED)
ALLOWED["bindings"] = set(ALLOWED)

WITHOUT_PYTHON = {"common", "ir", "opt", "lower", "codegen", "cache", "insight"}
SUFFIXES = {".h", ".hpp", ".def", ".inc", ".c", ".cc", ".cpp"}
LINE_LIMIT = 600

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
VERSION_TEST = re.compile(r"^\s*#\s*(?:el)?if.*\bPY_(?:VERSION_HEX|MAJOR_VERSION|MINOR_VERSION)\b")
TORCH = re.compile(r"^(?:ATen|c10|torch|caffe2)/")
PYCORE = re.compile(r"^(?:internal/)?pycore_")
LLVM = re.compile(r"^llvm(?:-c)?/")


def foreign_header(header: str, path: Path, folder: str) -> str | None:
    """What is wrong with including this header of another project at `path`, if anything."""
    if TORCH.match(header) and not (
        folder == "aten" and (path.suffix == ".cpp" or path.name == "torch.h")
    ):
        return f"torch header <{header}> outside aten/*.cpp and aten/torch.h"
    if PYCORE.match(header) and folder != "cpython":
        return f"internal Python header <{header}> outside cpython/"
    if LLVM.match(header) and folder != "codegen":
        return f"LLVM header <{header}> outside codegen/"
    if header == "Python.h" and folder in WITHOUT_PYTHON:
        return f"Python.h in {folder}/, which builds without Python"
    return None


def own_header(header: str, src: Path, folder: str) -> str | None:
    """What is wrong with including this quoted header from `folder`, if anything."""
    target, slash, _ = header.partition("/")
    if not slash or target not in ALLOWED:
        return f'"{header}" is not written from src/, as "folder/file.h"'
    if target != folder and target not in ALLOWED[folder]:
        allowed = ", ".join(sorted(ALLOWED[folder])) or "nothing else"
        return f'{folder}/ may not include "{header}" (it may include {allowed})'
    if not (src / header).is_file():
        return f'"{header}" does not exist'
    return None


def check_file(path: Path, src: Path) -> Iterator[tuple[int, str]]:
    """Findings of one file of src/ as (line number, message)."""
    folder = path.relative_to(src).parts[0]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if VERSION_TEST.match(line) and folder != "cpython":
            yield number, "test of the Python version outside cpython/"
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, angled = match.groups()
        problem = foreign_header(quoted or angled, path, folder)
        if not problem and quoted and quoted != "Python.h" and not PYCORE.match(quoted):
            problem = own_header(quoted, src, folder)
        elif (
            not problem and angled and angled.split("/")[0] in ALLOWED and (src / angled).is_file()
        ):
            problem = f"own header <{angled}> must be in quotes"
        if problem:
            yield number, problem


def check_length(path: Path) -> Iterator[tuple[int, str]]:
    count = len(path.read_text(encoding="utf-8").splitlines())
    if count >= LINE_LIMIT:
        yield count, f"{count} lines; files stay under {LINE_LIMIT}"


def sources(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file())


def check(root: Path) -> list[str]:
    """All findings for the project at `root`, in the order of paths."""
    src = root / "src"
    found: list[str] = []

    def report(path: Path, findings: Iterator[tuple[int, str]]) -> None:
        found.extend(f"{path.relative_to(root)}:{line}: {message}" for line, message in findings)

    if not src.is_dir():
        return [f"{src}: no such folder"]
    for path in sources(src):
        parts = path.relative_to(src).parts
        if len(parts) < 2 or parts[0] not in ALLOWED:
            report(path, iter([(1, "not in a folder of the map")]))
            continue
        report(path, check_file(path, src))
        report(path, check_length(path))
    for path in sources(root / "tests" / "unit"):
        report(path, check_length(path))
    return found


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = check(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
