#!/usr/bin/env bash
# The C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer, in build/sanitize.
# usage: sanitize.sh [ctest arguments]
#
# Leaks are looked for only in the tests that embed no interpreter (tests/unit/CMakeLists.txt says
# which): CPython and torch keep thousands of objects for the life of the process, which
# LeakSanitizer cannot tell from leaks. Leaks of references are tested from Python instead.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
mkdir -p build
cmake -S . -B build/sanitize -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
  -DCMAKE_BUILD_TYPE=Debug -DGLOWPLUG_SANITIZE=address,undefined > build/sanitize.log 2>&1 \
  || { cat build/sanitize.log; exit 1; }
cmake --build build/sanitize -j "$jobs"
# An undefined operation must fail the test, not only print.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
ctest --test-dir build/sanitize -j "$jobs" --output-on-failure "$@"
