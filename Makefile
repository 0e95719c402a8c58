# The verbs of this repository. A fresh machine needs Python 3.11 or newer, and a C compiler
# with Python's headers for the kernel.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
DOCKER ?= docker

# What the virtual environment is ready for: `make run` asks for less than `make test`.
READY_TO_RUN := $(VENV)/.ready-to-run
READY_TO_TEST := $(VENV)/.ready-to-test
READY_FOR_SPARK := $(VENV)/.ready-for-spark
READY_FOR_CLUSTER := $(VENV)/.ready-for-cluster
READY_FOR_DOCS := $(VENV)/.ready-for-docs
PYX := $(wildcard src/penstock/*/*.pyx bench/*.pyx)
PXD := $(wildcard src/penstock/*/*.px[di] bench/*.pxd)

# Spark's workers and the tests' daemons start by the dozen: none should compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-long check bench bench-spark sim fmt docs build image clean

run: $(READY_TO_RUN) $(if $(findstring --spark,$(ARGS)),$(READY_FOR_SPARK)) $(if $(findstring --cluster,$(ARGS)),$(READY_FOR_CLUSTER))  ## start nsqd, nsqadmin and a demo with live rates; ARGS=--spark for the archive, ARGS=--cluster for three nodes
	@$(BIN)/penstock $(if $(findstring --cluster,$(ARGS)),up $(filter-out --cluster,$(ARGS)),demo $(ARGS))

test: build  ## the suite on all cores, in minutes; ARGS="tests/log -k segment" for a part of it
ifeq ($(strip $(ARGS)),)
	@.ci/test
else
	@.ci/install_test_tools
	@$(BIN)/python -m pytest -n $$($(BIN)/python -c "import os; print(2 * (os.cpu_count() or 1))") --no-loadscope-reorder $(ARGS)
endif

test-long: build  ## everything: all histories and seeds, Spark, the browser, coverage; an hour and more
	@.ci/test long

check: build  ## lint, format, types, import direction, tidiness
	@.ci/check

bench: build  ## the benchmark; ARGS="--quick" for a short look
	@PYTHONPATH=. $(BIN)/python -m bench $(ARGS)

sim: build  ## histories of replication; ARGS="--histories 100000", ARGS="--seed 4711" shows one
	@PYTHONPATH=. $(BIN)/python -m sim $(ARGS)

bench-spark: build  ## the data pipeline's figures; ARGS="--quick" for a short look
	@PYTHONPATH=. $(BIN)/python -m bench.spark $(ARGS)

fmt: build  ## format and sort imports
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(READY_FOR_DOCS)  ## the documents as a site with search, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"

build: $(READY_TO_TEST)  ## everything in .venv, and the kernel compiled in place

image:  ## the image of all daemons, installed from a wheel; ARGS="--build-arg EXTRAS=admin,cluster" for a cluster
	@$(DOCKER) build -f deploy/Dockerfile -t penstock $(ARGS) .

clean:  ## remove what was built, keep the virtual environment's packages
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)/.ready-*
	rm -f $(PYX:.pyx=.c)
	find src bench -name '*.so' -delete
	find src sim bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY_TO_RUN): pyproject.toml setup.py $(PYX) $(PXD)
	@echo "preparing $(VENV) (once)"
	@$(PYTHON) .ci/prepare.py $(VENV) run
	@touch $@

$(READY_FOR_SPARK): $(READY_TO_RUN)
	@$(PYTHON) .ci/prepare.py $(VENV) spark
	@touch $@

$(READY_FOR_CLUSTER): $(READY_TO_RUN)
	@$(PYTHON) .ci/prepare.py $(VENV) cluster
	@touch $@

$(READY_FOR_DOCS): $(READY_TO_RUN)
	@$(PYTHON) .ci/prepare.py $(VENV) docs
	@touch $@

$(READY_TO_TEST): pyproject.toml setup.py $(PYX) $(PXD)
	@echo "preparing $(VENV) with all that tests need (once)"
	@$(PYTHON) .ci/prepare.py $(VENV) dev
	@touch $@ $(READY_TO_RUN) $(READY_FOR_SPARK) $(READY_FOR_CLUSTER)
