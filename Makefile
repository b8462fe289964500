# `make run` and `make test` set everything up on a fresh machine: a virtual environment in .venv, and what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-slow mutants bench check format clean

run: .venv/run.stamp
	$(BIN)/epsteps compare

test: check
	$(BIN)/pytest -n auto

test-slow: .venv/dev.stamp
	$(BIN)/pytest -n auto -m slow

mutants: .venv/mutation.stamp
	$(BIN)/python benchmarks/mutants.py --count 300 --report benchmarks/results/mutants.md

bench: .venv/dev.stamp
	$(BIN)/python benchmarks/roofline.py --out benchmarks/results
	$(BIN)/python benchmarks/scaling.py --out benchmarks/results

check: .venv/dev.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

format: .venv/dev.stamp
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv results

.venv/pip.stamp:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "epsteps needs Python 3.11 or newer; use make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/run.stamp: .venv/pip.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable '.[plots]'
	touch $@

.venv/dev.stamp: .venv/pip.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable '.[sklearn,fast,plots,parquet,theory,accounting,dask,dev]' torch==2.13.0
	touch $@

.venv/mutation.stamp: .venv/dev.stamp
	$(BIN)/pip install --quiet --editable '.[mutation]'
	touch $@
