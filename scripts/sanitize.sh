#!/usr/bin/env bash
# The C++ tests under sanitizers.
# usage: sanitize.sh [memory|threads] [ctest arguments]
#
# memory (default): AddressSanitizer and UndefinedBehaviorSanitizer, in build/sanitize. Leaks are
# looked for only in the tests that embed no interpreter (tests/unit/CMakeLists.txt says which):
# CPython and torch keep thousands of objects for the life of the process, which LeakSanitizer
# cannot tell from leaks. Leaks of references are tested from Python instead.
#
# threads: ThreadSanitizer, in build/sanitize-threads, on the tests that start threads. CPython and
# torch are not instrumented; what comes from there is in tests/unit/thread_sanitizer.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
mode=memory
if [ "${1:-}" = memory ] || [ "${1:-}" = threads ]; then mode=$1; shift; fi

if [ "$mode" = memory ]; then
  dir=build/sanitize sanitizers=address,undefined targets=() tests=()
  # An undefined operation must fail the test, not only print.
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
else
  dir=build/sanitize-threads sanitizers=thread
  tests=(common insight aten replay engine)
  targets=(--target "${tests[@]/#/test_}")
  tests=(-R "^($(IFS='|'; echo "${tests[*]}"))\$")
  export TSAN_OPTIONS="suppressions=$PWD/tests/unit/thread_sanitizer.txt:second_deadlock_stack=1"
  # ThreadSanitizer needs its own ranges of addresses, which a randomised layout may take. And
  # OpenMP's barriers are not seen.
  export OMP_NUM_THREADS=1
fi
mkdir -p build
cmake -S . -B "$dir" -G Ninja -DPython_EXECUTABLE="${PYTHON:-$PWD/.venv/bin/python}" \
  -DCMAKE_BUILD_TYPE=Debug -DGLOWPLUG_SANITIZE="$sanitizers" > "$dir.log" 2>&1 \
  || { cat "$dir.log"; exit 1; }
cmake --build "$dir" -j "$jobs" ${targets[@]+"${targets[@]}"}
setarch "$(uname -m)" -R ctest --test-dir "$dir" -j "$jobs" --output-on-failure \
  ${tests[@]+"${tests[@]}"} "$@"
