# make train | test | test-ci | test-slow | test-install | dist | golden | check | results | bench: each installs what it needs into .venv first.
SHELL := /bin/sh

RUN_DIR ?= runs/first
# Delays leap on some evenings, which takes depth, and have heavy tails, which takes the noise of Student's t.
TRAIN_FLAGS ?= --dataset=airline_nyc --max_rows=20000 --num_steps=1500 --batch_size=500 --learning_rate=0.03 \
	--eval_every=500 --eval_rows=1000 --compare=gp,linear --likelihood=studentt --kernel=squared_exponential \
	--num_predict_samples=32
# Python 3.10, 3.11 or 3.12 for a new .venv; empty: the first one found.
PYTHON ?=

CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
WORKERS ?= $(shell [ "$(CORES)" -ge 2 ] && echo 2 || echo 1)

BIN := .venv/bin
PACKAGES := $(wildcard gpflow_deep darn rbm_tracking ebp compression gpflow_deep_base gpflow_deep_runs)
SOURCES := $(PACKAGES) $(wildcard scripts benchmarks tests docs setup.py)
# Code on pages has lines of 80 characters, as their column shows no more.
PAGES := $(wildcard *.md */*.md docs/*/*.md)
BENCHMARKS ?= $(sort $(wildcard benchmarks/*.py))
# One thread for each worker, and no worker takes all memory of a GPU.
TEST_ENV := OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 TF_CPP_MIN_LOG_LEVEL=2 \
	TF_FORCE_GPU_ALLOW_GROWTH=true
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations=15 $(PYTEST_FLAGS)

.PHONY: train test test-ci test-slow test-install dist golden check format flags results bench docs notebooks clean

# Train the first model; if it was interrupted, continue it.
train: .venv/.installed
	$(BIN)/python scripts/train_dgp.py --run_dir=$(RUN_DIR) --resume=auto $(TRAIN_FLAGS)

# All tests but the slow ones: less than 6 minutes on two idle cores; tests/tiers.py says which are slow.
test: .venv/.installed
	$(PYTEST)

# The slow tests that every change has to pass: whole runs, several replicas, scripts that are killed and resumed.
test-ci: .venv/.installed
	$(PYTEST) --runslow -m "ci and slow"

test-slow: .venv/.installed
	$(PYTEST) --runslow -m "slow and not install"

# Wheel and source distribution in fresh environments of Python 3.10 and 3.12; needs the package index.
test-install: .venv/.installed
	$(PYTEST) -n 0 --runslow -m install

# Source distribution and wheel in dist/, for a package index, once what they hold and say of themselves is right.
dist: .venv/.installed
	rm -rf dist
	$(PYTEST) -n 0 --runslow tests/test_package.py
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

# Short runs of every script, compared bit for bit with a commit: make golden BASE=COMMIT [CASES=darn,rbm_stopped]
BASE ?= HEAD
golden: .venv/.installed
	$(BIN)/python -m tests.golden.compare --base=$(BASE) $(if $(CASES),--cases=$(CASES))

# Format, lint, types, and whether the tables of the pages are those of results/.
check: .venv/.installed
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff format --check --line-length=80 $(PAGES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(PACKAGES)
	$(if $(wildcard scripts/*.py),$(BIN)/mypy $(wildcard scripts/*.py))
	$(BIN)/mypy tests
	$(if $(wildcard benchmarks/*.py),$(BIN)/mypy benchmarks)
	$(BIN)/python -m gpflow_deep_runs.report check

format: .venv/.installed
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff format --line-length=80 $(PAGES)

# The flags of all scripts, which --help and wrong flags are answered with before TensorFlow starts.
flags: .venv/.installed
	$(BIN)/python -m gpflow_deep_runs.cli.described

# Write the tables of RESULTS.md and of the other pages from results/.
results: .venv/.installed
	$(BIN)/python -m gpflow_deep_runs.report

# Every script in benchmarks/; one of them: make bench BENCHMARKS=benchmarks/NAME.py
bench: .venv/.installed
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script"; done

# The site in docs/_build/html. Notebooks have the outputs in docs/notebooks/outputs, or none.
docs: .venv/.installed-docs
	$(TEST_ENV) $(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html

# Run the notebooks in full, but those whose outputs are of the code that they have: hours on two cores for all of them.
notebooks: .venv/.installed-docs
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python docs/site_notebooks.py

clean:
	rm -rf .venv build dist docs/_build/html docs/_build/doctrees docs/api/generated *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. The stamps are made last, so an installation that was stopped is taken up again. A new package
# needs a new installation, too: pip records the packages that it found.
.venv/.installed: setup.py pyproject.toml $(wildcard $(addsuffix /__init__.py,$(PACKAGES)))
	@set -e; if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		python="$(PYTHON)"; \
		for candidate in python3.11 python3.12 python3.10 python3 python; do \
			if [ -z "$$python" ] && $$candidate -c 'import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' >/dev/null 2>&1; then python="$$candidate"; fi; \
		done; \
		if [ -z "$$python" ]; then echo "No Python 3.10, 3.11 or 3.12 with the venv module was found; install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; fi; \
		echo "Making .venv with $$python"; "$$python" -m venv .venv; \
	fi
	$(BIN)/python -m pip install --disable-pip-version-check -e ".[test]"
	@touch $@

.venv/.installed-docs: .venv/.installed
	$(BIN)/python -m pip install --disable-pip-version-check -e ".[test,docs]"
	@touch $@

