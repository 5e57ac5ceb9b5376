# `make demo` trains a language policy; `make test` runs the tests. Both set up .venv on first use.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check claims benchmark clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: .venv/ready
	$(BIN)/polopt train

test: .venv/ready
	$(BIN)/python -m pytest

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

claims: .venv/ready
	$(BIN)/python -m benchmarks.claims
	$(BIN)/python -m benchmarks.catalogue

benchmark: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[trl]"
	$(BIN)/python -m benchmarks.language

clean:
	rm -rf .venv
