# The verbs of this repository. A fresh machine needs Python 3.11 or newer; with a C compiler and
# Python's headers the compiled kernel is built, without them the pure twin runs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

INSTALLED := $(VENV)/.installed
BUILT := $(VENV)/.built
PYX := $(wildcard src/penstock/*/*.pyx src/penstock/*/*/*.pyx)
PXD := $(wildcard src/penstock/*/*.pxd src/penstock/*/*/*.pxd)

.PHONY: run test check bench bench-spark fmt build clean

run: build  ## start nsqd with a small demo: a producer, two channels, live rates
	@$(BIN)/penstock demo $(ARGS)

test: build  ## the whole suite
	@.ci/install_test_tools
	@$(BIN)/python -m pytest $(ARGS)

check: build  ## lint, format, types, import direction, tidiness
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_imports.py tests/test_tidy.py

bench: build  ## the benchmark; ARGS="--quick" for a short look
	@$(BIN)/penstock bench $(ARGS)

bench-spark: build  ## the data pipeline's figures; ARGS="--quick" for a short look, "--steady 10"
	@$(BIN)/penstock bench-spark $(ARGS)

fmt: build  ## format and sort imports
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

build: $(BUILT)  ## install into .venv and compile the kernel in place
	@$(BIN)/python .ci/warn_without_kernel.py

clean:  ## remove what was built, keep the virtual environment's packages
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(BUILT)
	rm -f $(PYX:.pyx=.c)
	find src -name '*.so' -delete
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Penstock needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "python3 -m venv failed: install your system's package for it (python3-venv)" >&2; exit 1; }

$(INSTALLED): pyproject.toml setup.py | $(BIN)/python
	@echo "installing into $(VENV) (once)"
	@PENSTOCK_BUILD=later $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(BUILT): $(INSTALLED) $(PYX) $(PXD)
	@$(BIN)/python setup.py --quiet build_ext --inplace --parallel 4
	@touch $@
