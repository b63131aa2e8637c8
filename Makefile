# `make` lists the targets. Everything happens inside .venv; nothing else is touched.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
DEV_STAMP := $(VENV)/installed-dev

# TORCH=cpu installs PyTorch's builds without CUDA, a fifth of the size.
TORCH ?= cuda
TORCH_CPU_WHEELS := https://download.pytorch.org/whl/cpu
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Most tests wait for processes of their own to start, so two at a time take little more than one.
TEST_PROCESSES := --numprocesses logical --maxprocesses 4 --dist worksteal
# Else each of these processes compiles a thousand files anew.
test test-all: export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help install install-dev lock wheel packages installs oldest pythons demo test test-all gpu-check check docs proto bench peers tables private-tables clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv and install mdgan for its users (TORCH=cpu: without CUDA)

install-dev: $(DEV_STAMP) ## install what tests, checks and documentation need, too

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "mdgan needs Python 3.11 or newer; say which: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@case '$(TORCH)' in cpu|cuda) ;; *) echo "TORCH=$(TORCH): choose cpu or cuda" >&2; exit 2 ;; esac
	$(PYTHON) -m venv $(VENV)
ifeq ($(TORCH),cpu)
	$(PIP) --no-deps --index-url $(TORCH_CPU_WHEELS) torch torchvision
endif
	@awk '/^[a-z]/ {left_out = "$(TORCH)" == "cpu" && /^(cuda-|nvidia-|torch=|torchvision=|triton=)/} !left_out' \
		requirements.lock > $(VENV)/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement $(VENV)/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_STAMP): $(STAMP) constraints.txt
	$(PIP) --editable '.[plots,inception,privacy,tables,tensorboard,volumes,wandb,mlflow,dev,docs,fuzz]'
	@touch $@

LOCK := build/lock
lock: ## write requirements.lock anew from pyproject.toml and constraints.txt
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	printf 'hatchling\neditables\n' | $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --constraint constraints.txt \
		--extra plots --extra inception --extra tensorboard --output-file requirements.lock pyproject.toml -

wheel: $(STAMP) ## build dist/mdgan-….whl, to install on other machines
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

# What publishes mdgan's files on PyPI, and would refuse them there.
PACKAGES := build/packages
packages: ## build dist/mdgan-….whl and .tar.gz, and check what they hold and say
	$(PYTHON) -m venv $(PACKAGES)
	$(PACKAGES)/bin/python -m pip install --quiet --disable-pip-version-check build==1.6.1 twine==7.0.0
	rm -rf dist
	$(PACKAGES)/bin/python -m build --outdir dist .
	$(PACKAGES)/bin/python -m twine check --strict dist/*
	$(PACKAGES)/bin/python -m scripts.packages dist/*

installs: ## install mdgan alone and with each extra, and say which commands work (8 GB)
	$(PYTHON) -m scripts.installs

# Versions of indirect dependencies are the newest that fit.
OLDEST := build/oldest
oldest: ## run unit tests with the oldest versions that pyproject.toml allows (6 GB)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(OLDEST)/bin/uv pip compile --quiet --resolution lowest-direct --no-header \
		--extra plots --extra inception --extra privacy --extra tables --extra tensorboard --extra volumes \
		--output-file $(OLDEST)/requirements.txt pyproject.toml
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(OLDEST)/requirements.txt \
		hypothesis pytest pytest-timeout pytest-xdist pyyaml statsmodels
	PYTHONPATH=$(CURDIR) $(OLDEST)/bin/python -m pytest -o addopts= -o filterwarnings=default -m 'not slow' \
		$(TEST_PROCESSES) tests/unit

# Names of other Pythons, or paths to them.
PYTHONS ?= python3.12 python3.13 python3.14
pythons: ## run unit tests with each Python of PYTHONS that is installed (6 GB each)
	@for python in $(PYTHONS); do \
		name=build/pythons/$$(basename $$python); \
		$$python -m venv $$name || { echo "$$python: not installed"; continue; }; \
		$$name/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
			'.[plots,inception,privacy,tables,tensorboard,volumes,dev]' \
		&& PYTHONPATH=$(CURDIR) $$name/bin/python -m pytest $(TEST_PROCESSES) tests/unit || exit 1; \
	done

demo: $(STAMP) ## train a server and 4 workers on real digits, and report (about a minute and a half)
	@run=runs/demo-$$(date +%Y%m%d-%H%M%S) && set -x \
		&& $(BIN)/mdgan train --dataset digits --world-size 5 --out $$run \
		&& $(BIN)/mdgan report $$run

test: $(DEV_STAMP) ## run the default tests
	$(BIN)/python -m pytest $(TEST_PROCESSES)

test-all: $(DEV_STAMP) ## run every test, the slow ones too
	$(BIN)/python -m pytest -m '' $(TEST_PROCESSES)

gpu-check: $(DEV_STAMP) ## on a machine with a CUDA GPU: its tests, and iterations/s beside the CPU (8 minutes)
	@$(BIN)/python -m benchmarks.gpu

check: $(DEV_STAMP) docs ## format, lint, types, documentation, and a test for each promise
	$(BIN)/python -m tests.claims
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(DEV_STAMP) ## build the documentation into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'open build/site/index.html'

# A compiler of its own, since it brings a protobuf older than that of mdgan.
PROTO := build/proto
$(PROTO)/installed: Makefile
	$(PYTHON) -m venv $(PROTO)
	$(PROTO)/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.74.0
	@touch $@

proto: $(PROTO)/installed ## write mdgan/transport/links_pb2.py and .pyi anew from links.proto
	$(PROTO)/bin/python -m grpc_tools.protoc --proto_path mdgan/transport --python_out mdgan/transport \
		--pyi_out mdgan/transport links.proto

# Flower and pfl in a virtual environment of their own, which sees torch and all else of .venv.
PEERS := build/peers
$(PEERS)/installed: benchmarks/peers/requirements.txt | $(STAMP)
	$(BIN)/python -m venv $(PEERS)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mdgan.pth
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps flwr==1.42.0
	@touch $@

peers: $(PEERS)/installed ## install Flower and pfl beside .venv, for python -m benchmarks.peers

bench: $(DEV_STAMP) $(PEERS)/installed ## measure most of docs/performance.md and draw its picture (two hours; links as root)
	$(BIN)/python -m benchmarks

# CTGAN and SDMetrics beside .venv, for python -m benchmarks.tables.
TABLES := build/tables
$(TABLES)/installed: benchmarks/tables/requirements.txt | $(DEV_STAMP)
	$(PIP) --no-deps --upgrade --target $(TABLES) --requirement $<
	@touch $@

tables: $(TABLES)/installed ## install CTGAN and SDMetrics beside .venv, for python -m benchmarks.tables

# SmartNoise in a virtual environment of its own, without PyTorch, which it pins and MST and AIM do
# not use; tables' packages beside .venv.
PRIVATE := build/private_tables
$(PRIVATE)/installed: benchmarks/private_tables/requirements.txt | $(DEV_STAMP)
	$(PYTHON) -m venv $(PRIVATE)/central
	$(PRIVATE)/central/bin/python -m pip install --quiet --disable-pip-version-check \
		disjoint-set==0.9.0 Faker jax==0.10.2 mbi==1.1.0 smartnoise-sql==1.0.10
	$(PRIVATE)/central/bin/python -m pip install --quiet --disable-pip-version-check --no-deps smartnoise-synth==1.0.8
	$(PIP) --no-deps --upgrade --target $(PRIVATE)/beside --requirement $<
	@touch $@

private-tables: $(PRIVATE)/installed ## install SmartNoise, for python -m benchmarks.private_tables

clean: ## remove .venv, build/ and caches; runs/ stays
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
