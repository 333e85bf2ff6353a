# Every target but `help` and `clean` builds .venv first; once it stands, nothing here needs a network.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
WORKERS ?= 2
PYTEST_ARGS ?=

BIN := .venv/bin
STAMP := .venv/.labelzoo-built
BUSY := .venv/.labelzoo-busy

# Two workers share the cores: one thread each for BLAS, OpenMP and XLA's matrix kernels.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg \
            XLA_FLAGS="--xla_cpu_multi_thread_eigen=false $$XLA_FLAGS"
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# A usable environment was finished, belongs to this folder (its scripts hold the path) and still runs.
VENV_OK := $(shell test ! -e $(BUSY) && test "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" \
             && $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo yes)

.PHONY: help .venv demo test test-all slow packaging lint types notebooks bench clean FORCE

help:  ## this list
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  options: PYTHON=/path/to/python (used when .venv is created), WORKERS=2, PYTEST_ARGS=..."

.venv: $(STAMP)  ## the environment, rebuilt when pyproject.toml or constraints.txt change

# An unfinished or foreign environment is removed; a finished one is brought up to date in place,
# which needs no network when the pinned versions are already there.
$(STAMP): pyproject.toml constraints.txt $(if $(VENV_OK),,FORCE)
	@set -eu; export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0; \
	install="$(BIN)/python -m pip install -qq -c constraints.txt"; \
	if [ -z "$(VENV_OK)" ]; then \
	  python=$$(PYTHON="$(PYTHON)" sh .ci/find-python); \
	  echo "[.venv] creating with $$python"; \
	  rm -rf .venv; "$$python" -m venv .venv; \
	  touch $(BUSY); \
	  echo "[.venv] installing labelzoo and its pinned dependencies (a few minutes the first time)"; \
	  $$install -e '.[dev]'; \
	else \
	  echo "[.venv] bringing up to date"; \
	  touch $(BUSY); \
	  if ! $$install --no-index --no-build-isolation -e '.[dev]' 2>/dev/null; then \
	    $$install --dry-run -e '.[dev]' || { rm -f $(BUSY); \
	      echo "[.venv] the new dependencies could not be had; the environment is as it was" >&2; exit 1; }; \
	    $$install -e '.[dev]'; \
	  fi; \
	fi; \
	printf '%s\n' "$(CURDIR)" > $(STAMP); touch -r $(BUSY) $(STAMP); rm -f $(BUSY); \
	echo "[.venv] ready"

FORCE:

demo: .venv  ## compare engines on the built-in data and say what to label next; pictures in demo/
	$(BIN)/labelzoo demo

test: lint types  ## lint, types and the fast tests
	$(PYTEST) -m "not slow"

slow: .venv  ## the slow tests alone: long statistical runs and packaging
	$(PYTEST) -m slow

packaging: .venv  ## wheel and sdist, built and installed in clean environments
	$(PYTEST) -m slow tests/test_packaging.py

test-all: test  ## everything: test, the slow tests with packaging, the notebooks
	$(PYTEST) -m slow
	@$(run_notebooks)

lint: .venv  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv  ## mypy --strict
	$(BIN)/mypy

notebooks: .venv  ## notebooks/*.py to .ipynb, executed; a failing cell fails the target
	@$(run_notebooks)

define run_notebooks
set -eu; unset MPLBACKEND; \
export JUPYTER_PREFER_ENV_PATH=1 JUPYTER_PLATFORM_DIRS=1 PYDEVD_DISABLE_FILE_VALIDATION=1; \
count=0; \
for source in notebooks/*.py; do \
  test -e "$$source" || continue; \
  target="$${source%.py}.ipynb"; \
  echo "[notebooks] $$source"; \
  $(BIN)/jupytext --quiet --to ipynb --output "$$target" "$$source"; \
  $(BIN)/python -m nbconvert --log-level WARN --to notebook --execute --inplace \
    --ExecutePreprocessor.kernel_name=python3 --ExecutePreprocessor.timeout=900 "$$target" \
    || { echo "[notebooks] $$source failed" >&2; exit 1; }; \
  count=$$((count + 1)); \
done; \
if [ "$$count" -eq 0 ]; then echo "[notebooks] no notebooks/*.py found" >&2; exit 1; fi; \
echo "[notebooks] $$count executed"
endef

bench:  ## what each script in benchmarks/ measures; its docstring names the command
	@for script in benchmarks/*.py; do \
	  printf '%-36s%s\n' "$$script" "$$(sed -n '1s/^"""//p' "$$script")"; \
	done

clean:  ## remove caches and outputs; .venv stays (rm -rf .venv to start afresh)
	rm -rf build dist demo out .cache .pytest_cache .mypy_cache .ruff_cache notebooks/*.ipynb
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
