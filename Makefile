# Every target makes the environment it needs; `make test` needs nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# make test-kernel SET=all: the long scenarios too.  make test-cluster VERSIONS=1.37.2,1.34.4
# make chaos MINUTES=60 SEED=7.  make images TAG=0.1.0.  make bench PAGE=docs/reference/performance.md
SET ?= short
MINUTES ?= 2
SEED ?=
TAG ?=
PAGE ?=

.PHONY: up demo test fuzz lint test-kernel test-cluster images bench chaos clean

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "liken needs Python 3.11 or newer: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot make an environment: install the package python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) (first time only)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# exec: Ctrl-C reaches liken, and make does not report it as a failure of its own
up: $(READY)
	@exec $(BIN)/liken up

demo: $(READY)
	@exec $(BIN)/python -m tests.demo

test: $(READY)
	@$(BIN)/python -m pytest tests/unit tests/machines tests/services

# the parsers of what others wrote: other examples at each run, twenty times as many as `make test` tries
fuzz: $(READY)
	@$(BIN)/python -m pytest tests/unit/hostile --hypothesis-profile=fuzz --timeout=900

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# a kernel of its own under QEMU; root, because it installs Debian packages
test-kernel: $(READY)
	@$(BIN)/python -m tests.kernel $(if $(filter all,$(SET)),,-m "not long")

# API server, scheduler, kubelet and containerd of its own; root
test-cluster: $(READY)
	@VERSIONS="$(VERSIONS)" $(BIN)/python -m tests.cluster

chaos: $(READY)
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: $(READY)
	@$(BIN)/python -m tests.bench $(if $(PAGE),--page $(PAGE))

images: $(READY)
	@$(BIN)/python images/assemble.py dist/images $(TAG)

clean:
	rm -rf $(VENV) dist
