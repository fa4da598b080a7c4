# make run       setup, then serve the default model on http://127.0.0.1:8000
# make test      setup, then the checks and tests that CI runs
# make test-all  also the long tests, and the native tests under ASan and UBSan
# make setup     a virtual environment in .venv with Headway and its native core
PYTHON ?= python3
# make's own default is g++, which a machine with another compiler lacks
ifeq ($(origin CXX),default)
CXX := c++
endif
ARGS ?=
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard native/*/*.h native/*/*.cpp native/*/*/*.h native/*/*/*.cpp)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# What pyproject.toml's build needs, installed once: builds without isolation are incremental.
BUILD := "scikit-build-core>=0.11" "nanobind>=2.4" "cmake>=3.25" "ninja>=1.11"
CMAKE := $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DHEADWAY_PYTHON=OFF -DHEADWAY_TESTS=ON -DHEADWAY_WERROR=ON

.PHONY: run setup dev check native test test-all clean

run: setup
	$(BIN)/headway serve $(ARGS)

setup: .venv/.setup

dev: .venv/.dev

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: Python >= 3.11 is needed ($(PYTHON) was not found; set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python >= 3.11 is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' || { echo "make: Python's headers are missing (Debian: apt install python3-dev)" >&2; exit 1; }
	@command -v $(CXX) >/dev/null || { echo "make: a C++20 compiler is needed ($(CXX) was not found; Debian: apt install g++)" >&2; exit 1; }
	@echo "Making a virtual environment in .venv"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "make: no virtual environment could be made (Debian: apt install python3-venv)" >&2; exit 1; }

.venv/.build: .venv/bin/python Makefile
	$(PIP) install -q --upgrade pip $(BUILD)
	@touch $@

.venv/.setup: .venv/.build pyproject.toml $(NATIVE)
	@echo "Building the native core and installing Headway (about two minutes the first time)"
	$(PIP) install -q --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.setup
	$(PIP) install -q --no-build-isolation -e '.[dev]'
	@touch $@

check: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Native tests share the objects of the Python module: one build for both.
dev check native test test-all: export SKBUILD_CMAKE_DEFINE := HEADWAY_TESTS=ON;HEADWAY_WERROR=ON

native: dev
	for test in build/cp*/native_test; do $$test || exit 1; done

test: check native
	$(BIN)/pytest -n 2 --dist loadfile -m "not long"

test-all: check native
	$(PIP) install -q --no-build-isolation -e '.[dev,parity]'
	$(CMAKE) -B build/sanitized -DHEADWAY_SANITIZE=ON >/dev/null
	$(BIN)/cmake --build build/sanitized
	build/sanitized/native_test
	@echo "Making the environments of the clients that are tested (some minutes the first time)"
	$(BIN)/python tests/wire/clients/environments.py
	$(BIN)/pytest

clean:
	rm -rf .venv build
