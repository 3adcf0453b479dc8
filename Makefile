# Two commands do everything on a bare Debian 12: `make run` and `make test`.
PYTHON := .venv/bin/python
JOBS ?= $(shell nproc)
export JOBS

.PHONY: help setup build run test test-all verify performance unit pytest includes fuzz lint format sanitize sanitize-threads wheel clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## system packages, .venv, Python packages
	@scripts/setup.sh

build: setup  ## the extension, in place, and the C++ tests
	@scripts/build.sh

run: build  ## benchmark ResNet-50: eager against Glowplug, then the explanation
	@.venv/bin/glowplug bench resnet50

test: build includes unit  ## include rules, C++ tests, Python tests but the slow ones
	$(PYTHON) -m pytest -q -m "not slow"
	GLOWPLUG_NATIVE=1 $(PYTHON) -m pytest -q -m "not slow" tests/python

test-all: build includes unit  ## test, with the slow ones
	$(PYTHON) -m pytest -q
	GLOWPLUG_NATIVE=1 $(PYTHON) -m pytest -q tests/python

verify: build  ## the Python tests in verify mode: every compiled call beside the original
	GLOWPLUG_VERIFY=1 $(PYTHON) -m pytest -q -m "not slow" tests/python

SEED ?= 100000
COUNT ?= 20000
fuzz: build  ## random programs compiled against eager (SEED=, COUNT=); failures are made small
	$(PYTHON) -m tests.fuzz --seed $(SEED) --count $(COUNT) --keep-going --shrink

performance: build  ## measures models against eager and others; writes docs/performance.md
	$(PYTHON) bench/performance.py

includes:
	$(PYTHON) scripts/check_includes.py

unit: build
	ctest --test-dir build/dev -j $(JOBS) --output-on-failure

lint:  ## clang-format, clang-tidy, ruff, mypy, file sizes
	@scripts/setup.sh lint
	@scripts/lint.sh

format:  ## rewrite sources in the project's format
	@scripts/setup.sh lint
	find src tests/unit -name '*.cpp' -o -name '*.h' -o -name '*.c' | xargs clang-format-22 -i
	.venv/bin/ruff check --fix-only -q . ; .venv/bin/ruff format .

sanitize: setup  ## the C++ tests under the address and undefined-behaviour sanitizers
	@scripts/sanitize.sh

sanitize-threads: setup  ## the C++ tests that start threads, under the thread sanitizer
	@scripts/sanitize.sh threads

wheel: setup  ## a wheel in dist/
	$(PYTHON) -m pip wheel --no-build-isolation --no-deps -w dist .

clean:  ## remove what was built (.venv stays)
	rm -rf build dist python/glowplug/_C*.so
