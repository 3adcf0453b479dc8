#!/usr/bin/env bash
# Brings a machine to the point where Glowplug builds: system packages, .venv, Python packages.
# usage: setup.sh [lint]     "lint" adds the linters.
# Runs again in well under a second when nothing has changed: packages are asked for only when they
# are missing, Python packages only when a requirements file differs from what was installed last.
set -euo pipefail
cd "$(dirname "$0")/.."
want_lint=${1:-}

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

is_311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 /usr/bin/python3.11 python3 python; do
    if [ -n "$candidate" ] && is_311 "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
}

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

packages="g++ cmake ninja-build ccache libgtest-dev libfmt-dev libxxhash-dev nlohmann-json3-dev"
packages="$packages llvm-22-dev libsleef-dev"
lint_packages="clang-format-22 clang-tidy-22 clang-tools-22"

# Names on stdout the packages that this machine lacks.
missing_packages() {
  local package python
  [ "$want_lint" != lint ] || packages="$packages $lint_packages"
  for package in $packages; do
    installed "$package" || echo "$package"
  done
  # A Python from elsewhere (pyenv, say) brings its own headers and venv module.
  python=$(find_python)
  if [ -z "$python" ]; then
    echo python3.11 python3.11-dev python3.11-venv
  else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3.11-venv
    [ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
      echo python3.11-dev
  fi
}

install_packages() {
  local missing sudo=
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian: these must be there: $packages"
    return 0
  fi
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "${missing// /}" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "neither root nor sudo to install what is missing: $missing"
    sudo=sudo
  fi
  say "installing system packages: $missing"
  $sudo apt-get update -qq
  # shellcheck disable=SC2086
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

make_venv() {
  local python
  if [ -x .venv/bin/python ]; then
    is_311 .venv/bin/python || fail ".venv is not Python 3.11: remove it and run again"
    return 0
  fi
  python=$(find_python)
  [ -n "$python" ] || fail "no Python 3.11 found (\$PYTHON, python3.11, python3): install it"
  say "making .venv with $python"
  "$python" -m venv .venv
}

# install_group NAME: requirements/NAME.txt, unless just that was installed already.
install_group() {
  local stamp=".venv/.glowplug-$1.sha256" sum
  sum=$(cat "requirements/$1.txt" requirements/constraints.txt | sha256sum)
  [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ] || return 0
  say "installing Python packages: requirements/$1.txt (a minute or more the first time)"
  .venv/bin/python -m pip install --quiet --quiet -r "requirements/$1.txt"
  echo "$sum" > "$stamp"
}

install_packages
make_venv
install_group build
install_group test
if [ "$want_lint" = lint ]; then install_group lint; fi
