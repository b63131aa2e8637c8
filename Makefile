# `make` lists the targets. Everything happens inside .venv; nothing else is touched.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

# Most tests wait for processes of their own to start, so two at a time take little more than one.
TEST_PROCESSES := --numprocesses logical --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all check docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv and install mdgan with all it needs (about two minutes, 6 GB)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "mdgan needs Python 3.11 or newer; say which: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,docs,plots,inception,tensorboard,fuzz]'
	@touch $@

demo: $(STAMP) ## train a server and 4 workers on real digits, and report (about a minute and a half)
	@run=runs/demo-$$(date +%Y%m%d-%H%M%S) && set -x \
		&& $(BIN)/mdgan train --dataset digits --world-size 5 --out $$run \
		&& $(BIN)/mdgan report $$run

test: $(STAMP) ## run the default tests
	$(BIN)/python -m pytest $(TEST_PROCESSES)

test-all: $(STAMP) ## run every test, the slow ones too
	$(BIN)/python -m pytest -m '' $(TEST_PROCESSES)

check: $(STAMP) docs ## format, lint, types and documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP) ## build the documentation into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'open build/site/index.html'

bench: $(STAMP) ## measure speed and memory on this machine, and draw docs/performance.png (40 minutes)
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.versus --rounds 3 --json benchmarks/results/versus.json
	$(BIN)/python -m benchmarks.versus --rounds 3 --workers 20 --precision bf16
	$(BIN)/python -m benchmarks.scaling --json benchmarks/results/scaling.json
	$(BIN)/python -m benchmarks.picture benchmarks/results/versus.json benchmarks/results/scaling.json docs/performance.png
	$(BIN)/python -m pytest benchmarks/components.py -o addopts= -q
	@echo 'on limited links, as root: python -m benchmarks.bandwidth; quality of the savings: python -m benchmarks.savings'

clean: ## remove .venv, caches and runs/
	rm -rf $(VENV) runs build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
