# `make demo` trains a language policy; `make test` runs the tests, `make docs` builds
# the documentation site into site/. Each installs into .venv what it needs, on first use.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check docs claims benchmark clean

# The library alone.
.venv/demo: pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e ".[language]"
	touch $@

# With the tests' tools, and the libraries that polopt is compared with.
.venv/ready: .venv/demo
	$(PIP) -e ".[dev]"
	touch $@

# The documentation site's tools.
.venv/docs: .venv/demo
	$(PIP) -e ".[docs]"
	touch $@

demo: .venv/demo
	$(BIN)/polopt train

# Compiled once: many tests begin processes, which would compile it again where Python may not write.
test: .venv/ready
	$(BIN)/python -m compileall -q polopt benchmarks
	$(BIN)/python -m pytest

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

claims: .venv/ready
	$(BIN)/python -m benchmarks.claims
	$(BIN)/python -m benchmarks.catalogue

benchmark: .venv/ready
	$(PIP) -e ".[trl]"
	$(BIN)/python -m benchmarks.language

clean:
	rm -rf .venv
