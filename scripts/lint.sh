#!/usr/bin/env bash
# Format, static checks and types. Reports everything it finds before it fails.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
failed=0
step() {
  printf '== %s\n' "$1"
  shift
  "$@" || failed=1
}

mapfile -t sources < <(find src tests/unit \( -name '*.cpp' -o -name '*.h' -o -name '*.c' \) | sort)
step "clang-format" clang-format-22 --dry-run --Werror "${sources[@]}"

# A configuration of its own: clang cannot read the precompiled header that gcc makes.
mkdir -p build
cmake -S . -B build/lint -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON > build/lint.log 2>&1 \
  || { cat build/lint.log; exit 1; }
step "clang-tidy" run-clang-tidy-22 -quiet -p build/lint -j "$jobs" \
  -extra-arg=-Wno-unknown-warning-option "^$PWD/src/.*\.cpp$"

step "ruff" .venv/bin/ruff check .
step "ruff format" .venv/bin/ruff format --check .
step "mypy" .venv/bin/mypy
step "include rules" .venv/bin/python scripts/check_includes.py
step "file sizes" .venv/bin/python scripts/check_sizes.py
exit $failed
