# Everything a newcomer needs: `make run` optimises three kernels, `make test` proves the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install run test test-slow test-cluster test-postgresql check check-types check-rest docs format clean

install: $(STAMP)

$(STAMP): pyproject.toml setup.py
	@echo "Making a virtual environment in $(VENV) and installing into it: a minute or two, once."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade pip || true # it counts packages
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -e '.[dev]'
	@touch $@

# Kernels of today's `nki` for trn2; TARGET=trn1 takes those of neuronxcc.nki, DIALECT says it by itself.
run: install
	$(BIN)/accelopt run $(if $(DIALECT),--dialect $(DIALECT)) $(if $(TARGET),--target $(TARGET)) \
		--out runs/$(or $(TARGET),$(DIALECT),first)

test: install
	$(BIN)/python -m pytest -m 'not slow and not gpu' -n 3 --dist loadfile --no-loadscope-reorder

test-slow: install
	$(BIN)/python -m pytest -m slow

# Ray's cluster and a PostgreSQL server of the test's own; what is missing is installed.
test-cluster: install
	@$(BIN)/python -c 'import ray' 2>/dev/null || $(BIN)/python -m pip install --quiet -e '.[ray]'
	$(BIN)/python -m pytest tests/sandbox/test_cluster.py

test-postgresql: install
	@$(BIN)/python -c 'import psycopg' 2>/dev/null || $(BIN)/python -m pip install --quiet -e '.[postgresql]'
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || (apt-get update -qq && apt-get install -y -qq postgresql)
	$(BIN)/python -m pytest tests/database

# Types take longest and one processor; everything else is checked beside them.
check: install
	@$(MAKE) --no-print-directory -j2 --output-sync=target check-types check-rest

check-types: install
	$(BIN)/mypy

check-rest: install
	$(BIN)/ruff format --check accelopt scripts tests benchmarks
	$(BIN)/ruff check accelopt scripts tests benchmarks
	$(BIN)/lint-imports
	$(BIN)/python scripts/line_budget.py
	$(BIN)/python scripts/timing_constants.py --check
	$(BIN)/python scripts/calls.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@rm -rf build/dist # a source distribution, and the wheel that is built from it
	$(BIN)/python -m build --no-isolation --outdir build/dist >/dev/null
	$(BIN)/python -m twine check --strict build/dist/*

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html: open it in a browser"

format: install
	$(BIN)/ruff format accelopt scripts tests benchmarks
	$(BIN)/ruff check --fix accelopt scripts tests benchmarks

clean:
	rm -rf $(VENV) build *.egg-info

# On a machine with a CUDA GPU, torch and triton; wheels carried in .whl are installed, nothing is fetched.
GPU_PYTHON ?= python3
H200_OUT   ?= experiments/flb_h200/results

.PHONY: h200 test-gpu test-gpu-native

h200:
	@if ls .whl/*.whl >/dev/null 2>&1; then $(GPU_PYTHON) -m pip install --quiet --no-index --no-deps --upgrade .whl/*.whl; fi
	$(GPU_PYTHON) experiments/flb_h200/run.py --out $(H200_OUT)

# Two targets: on an H200 with 16 processors the first takes some 12 minutes, the second longer than five.
test-gpu:
	$(GPU_PYTHON) -m pytest -vv -n 12 -m gpu tests/hostile_gpu/test_hostile.py

test-gpu-native:
	$(GPU_PYTHON) -m pytest -vv -n 12 -m gpu tests/kernels/gpu tests/contract tests/hostile_gpu/test_native.py

# Runs a folder of NKI test files on the simulated core: make conformance SUITE=path/to/tests
# FLAGS go to pytest; SUITE_PATH is a folder that the tests import from.
conformance: install
	$(if $(SUITE_PATH),PYTHONPATH=$(SUITE_PATH)) $(BIN)/accelopt python --seed 0 --no-times -m pytest $(SUITE) $(FLAGS)

.PHONY: conformance
