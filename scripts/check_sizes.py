"""Every source file stays under 600 lines and every line within 100 columns.

Tables (.def) have a row a line, however long its text is.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "python", "tests", "scripts", "bench")
SUFFIXES = {".cpp", ".c", ".h", ".py", ".sh"}
MAX_LINES = 600
MAX_COLUMNS = 100


def problems(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    name = path.relative_to(ROOT)
    found = [
        f"{name}:{number}: {len(line)} columns, at most {MAX_COLUMNS}"
        for number, line in enumerate(lines, 1)
        if len(line) > MAX_COLUMNS
    ]
    if len(lines) > MAX_LINES:
        found.append(f"{name}: {len(lines)} lines, at most {MAX_LINES}")
    return found


def main() -> int:
    files = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*")) if p.suffix in SUFFIXES]
    found = [problem for path in files for problem in problems(path)]
    print("\n".join(found) if found else f"{len(files)} files within the limits")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
