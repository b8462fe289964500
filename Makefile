# `make run` and `make test` set everything up on a fresh machine: a virtual environment, and what it needs. It is .venv
# for python3, and one of its own, such as .venv-3.13, for another Python: make test PYTHON=python3.13.
PYTHON ?= python3
ifeq ($(origin PYTHON),file)
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
BIN := $(VENV)/bin

# The gpu engine's torch code is tested on the processor. On Linux the build without CUDA, which is gigabytes smaller,
# bears a version of its own; where pip finds none, tests of the gpu engine are skipped.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
NO_TORCH := pip finds no $(TORCH): tests of the gpu engine are skipped

.PHONY: run test test-slow matrix mutants bench fits docs docs-check check format clean

run: $(VENV)/run.stamp
	$(BIN)/epsteps compare

test: check
	@$(BIN)/python -c 'import sys; print("Python", sys.version, "in $(VENV)")'
	$(BIN)/pytest -n auto

test-slow: $(VENV)/dev.stamp
	$(BIN)/pytest -n auto -m slow

matrix: $(VENV)/dev.stamp
	$(BIN)/pytest -n auto -m slow -rP tests/test_matrix.py

mutants: $(VENV)/mutation.stamp
	$(BIN)/python benchmarks/mutants.py --count 300 --report benchmarks/results/mutants.md

bench: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/roofline.py --out benchmarks/results
	$(BIN)/python benchmarks/scaling.py --out benchmarks/results

# Whole fits beside scikit-learn and diffprivlib: an hour or more. make fits DATA=folder fits the tables of a folder.
fits: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/fits.py all --full $(if $(DATA),--data $(DATA)) --out benchmarks/results/fits.md

# The documentation site, in docs/_build/html: pages, reference of every public name, gallery. Warnings are errors.
docs: $(VENV)/docs.stamp
	rm -rf docs/_build docs/generated
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky -b html docs docs/_build/html

# Every page and link of the site in a real browser (Debian's Chromium), wide and narrow.
docs-check: docs $(VENV)/docs-check.stamp
	$(BIN)/pytest --noconftest -m slow tests/test_site.py

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/dev.stamp
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv .venv-* results docs/_build docs/auto_gallery docs/generated docs/repository docs/sg_execution_times.rst

# Tests start many processes, and each would compile all that it imports where byte code may not be kept.
unexport PYTHONDONTWRITEBYTECODE

$(VENV)/pip.stamp:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "epsteps needs Python 3.11 or newer; use make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/run.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable '.[plots]'
	touch $@

$(VENV)/dev.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable '.[sklearn,fast,plots,parquet,theory,dask,serve,remote,dev]'
	$(BIN)/pip install --quiet $(TORCH) || echo "$(NO_TORCH)"
	touch $@

$(VENV)/docs.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

$(VENV)/docs-check.stamp: $(VENV)/docs.stamp
	$(BIN)/pip install --quiet --editable '.[docs-check]'
	touch $@

$(VENV)/mutation.stamp: $(VENV)/dev.stamp
	$(BIN)/pip install --quiet --editable '.[mutation]'
	touch $@
