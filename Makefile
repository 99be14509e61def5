# Everything a newcomer needs: `make run` optimises three kernels, `make test` proves the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install run test test-slow check format clean

install: $(STAMP)

$(STAMP): pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

run: install
	$(BIN)/accelopt run

test: install
	$(BIN)/python -m pytest -m 'not slow and not gpu'

test-slow: install
	$(BIN)/python -m pytest -m slow

check: install
	$(BIN)/ruff format --check accelopt scripts tests benchmarks
	$(BIN)/ruff check accelopt scripts tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff format accelopt scripts tests benchmarks
	$(BIN)/ruff check --fix accelopt scripts tests benchmarks

clean:
	rm -rf $(VENV) build *.egg-info
