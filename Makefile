# Every target makes the environment it needs; `make test` needs nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: up demo test lint test-kernel test-cluster images bench chaos clean

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "liken needs Python 3.11 or newer: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot make an environment: install the package python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) (first time only)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

up: $(READY)
	@$(BIN)/liken up

demo: $(READY)
	@$(BIN)/python -m tests.demo

test: $(READY)
	@$(BIN)/python -m pytest tests/unit tests/machines tests/services

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

clean:
	rm -rf $(VENV)
