# Every target sets up what it needs: a virtual environment in .venv with the tested versions of constraints.txt.
# Nothing but Python 3.11 or newer (PYTHON=...) and pip is asked for.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test check bench docs format clean

help:
	@echo "make demo    train four methods on imbalanced digits and compare them (half a minute)"
	@echo "make test    run every test"
	@echo "make check   formatting, lint, types, documentation and its examples: what CI asks for, with the tests"
	@echo "make bench   time the loss beside what one could use instead"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make format  let ruff mend what it can"
	@echo "make clean   remove the virtual environment and everything built"

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/rectifier demo

test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests README.md

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet src experiments docs
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build/html

bench: $(READY)
	$(BIN)/python benchmarks/loss.py

docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) rectifier-demo docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
