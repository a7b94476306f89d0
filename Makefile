# Every target first creates a virtual environment in .venv, with the tested versions of constraints.txt.
# This needs Python 3.11.4 or newer (PYTHON=...) and pip. torchvision and timm lie in a folder of their own, which only their
# tests use: PyPI's torchvision does not load with a torch for CPUs, and other packages load it wherever they find it.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FRESH := build/fresh

.PHONY: help demo test check bench docs numbers format dist clean

help:
	@echo "make demo     Train four methods on imbalanced digits and compare them (half a minute)."
	@echo "make test     Run all tests."
	@echo "make check    Check formatting, lint, types, documentation and its examples, as CI does."
	@echo "make bench    Time the loss and its alternatives."
	@echo "make docs     Build the documentation into docs/_build/html."
	@echo "make numbers  Write the numbers of README.md, docs/ and results/README.md."
	@echo "make format   Fix formatting and lint with ruff."
	@echo "make dist     Build the wheel and the source archive into dist/, and try the wheel in a new environment."
	@echo "make clean    Remove the virtual environment and all build output."

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps --upgrade --target $(VENV)/torchvision torchvision timm
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

numbers: $(READY)
	$(BIN)/python tests/project/page_numbers.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The wheel alone must run README's examples, and with [train] the command line.
dist: $(READY)
	rm -rf dist $(FRESH)
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(FRESH)/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd $(FRESH) && bin/python -m doctest $(CURDIR)/README.md
	$(FRESH)/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[train]"
	cd $(FRESH) && bin/rectifier demo
	rm -rf $(FRESH)

clean:
	rm -rf $(VENV) rectifier-demo docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
