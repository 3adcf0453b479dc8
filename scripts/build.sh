#!/usr/bin/env bash
# Builds the extension and the C++ tests in build/dev, puts the extension into python/glowplug, and
# sees to it that .venv's Python imports glowplug from there.
#
# The package is installed once, editable and without its CMake part: that gives the `glowplug`
# command and the torch.compile backend entry point, while an edit of a Python or C++ file costs
# no more than ninja's own incremental build.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

if [ ! -f build/dev/build.ninja ]; then
  cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo
fi
cmake --build build/dev -j "$jobs"
cmake --install build/dev --prefix python > build/dev/install.log

stamp=.venv/.glowplug-editable.sha256
sum=$(pwd | cat - pyproject.toml | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ]; then
  .venv/bin/python -m pip install --quiet --no-build-isolation --no-deps -C wheel.cmake=false -e .
  echo "$sum" > "$stamp"
fi
