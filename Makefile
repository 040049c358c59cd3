# Everything from python3 and make alone: `make demo`, `make test`. The interpreter to start from: make PYTHON=python3.12 test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
# One thread per worker, each with its own XLA; a third worker on two cores fills the waits of the others. Tests compile far more than they compute: a file
# stays with one worker, and optimisation is left out.
WORKERS ?= 3
ONE_THREAD := --xla_cpu_multi_thread_eigen=false
UNOPTIMISED := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
               --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
PYTEST := NPROC=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
          $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile
SHAPES := --jaxtyping-packages=natkal.families,natkal.models,natkal.curvature,natkal.engine,natkal.banks,natkal.paper,beartype.beartype
# What depends on the precision; this pass also checks the shapes that annotations promise.
NUMERIC := tests/curvature/test_registry.py tests/engine/test_step.py tests/engine/test_safety.py tests/banks/test_bank.py

.DEFAULT_GOAL := help
.PHONY: help demo verify test test-matrix lint soak docs docs-test gallery package clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## learn online from a year of flights, embedded; writes runs/demo/report.html
	@$(BIN)/natkal learn @flights --target late --run runs/demo --overwrite

verify: $(READY)  ## run the paper's theorems on the built-in models
	@$(BIN)/natkal verify

test: lint  ## all checks: lint, types, import contract, tests in float64 and in float32
	@echo "== tests, float64"
	@NATKAL_DTYPE=float64 XLA_FLAGS="$(ONE_THREAD) $(UNOPTIMISED)" $(PYTEST) -m "not slow" --doctest-modules tests src README.md
	@echo "== tests, float32"
	@NATKAL_DTYPE=float32 XLA_FLAGS="$(ONE_THREAD) $(UNOPTIMISED)" $(PYTEST) $(SHAPES) -m "not slow" $(NUMERIC)

lint: $(READY)  ## ruff, pyright and the import contract
	@echo "== ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@echo "== pyright"
	@$(BIN)/pyright
	@echo "== import contract"
	@$(BIN)/lint-imports --no-logo > $(VENV)/lint-imports.log 2>&1 || { cat $(VENV)/lint-imports.log; exit 1; }

# The oldest supported pair and the newest: interpreters from the path or from pyenv, each in an environment of its own.
OLDEST := python3.11
NEWEST := $(lastword $(sort $(notdir $(wildcard /usr/bin/python3.1[1-9] /usr/local/bin/python3.1[1-9] $(HOME)/.pyenv/versions/*/bin/python3.1[1-9]))))
MATRIX := tests/test_package.py tests/families tests/engine/test_step.py tests/models tests/integrations
matrix_run = echo "== $(2) with $(3)"; \
	test -x $(1)/bin/python || $(call interpreter,$(2)) -m venv $(1); \
	$(1)/bin/python -m pip install -qq --disable-pip-version-check --upgrade --editable '.[test]' $(3) && \
	$(1)/bin/python -c "import sys, jax; print(sys.version.split()[0], 'jax', jax.__version__)" && \
	NATKAL_DTYPE=float64 NPROC=1 OMP_NUM_THREADS=1 XLA_FLAGS="$(ONE_THREAD) --xla_backend_optimization_level=0" \
	$(1)/bin/python -m pytest -q -n $(WORKERS) --dist loadfile $(MATRIX)
interpreter = $(or $(lastword $(sort $(wildcard $(HOME)/.pyenv/versions/*/bin/$(1)))),$(1))

test-matrix:  ## a fast part of the tests on the oldest supported Python and jax, and on the newest there are
	@$(call matrix_run,.venv-oldest,$(OLDEST),'jax==0.10.0' 'jaxlib==0.10.0')
	@$(call matrix_run,.venv-newest,$(NEWEST),jax)

soak: $(READY)  ## the long runs: every test as a user compiles; float32 for ten million steps; 200 kills, 5,000 damaged checkpoints, 10,000 bad rows
	@NATKAL_DTYPE=float64 XLA_FLAGS="$(ONE_THREAD)" $(PYTEST) tests
	@NATKAL_DTYPE=float64 XLA_FLAGS="$(ONE_THREAD)" $(PYTEST) $(SHAPES) $(NUMERIC)
	@$(BIN)/python -m benchmarks soak
	@$(BIN)/python -m benchmarks kills

docs: $(DOCS_READY)  ## build the site into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html"

docs-test: $(DOCS_READY)  ## run every code block of the site and of README.md, and the notebooks
	@WORKERS=$(WORKERS) $(BIN)/python tests/docs/run_pages.py README.md docs examples/notebooks

gallery: $(DOCS_READY)  ## redraw the pictures of the gallery, docs/gallery/*.png
	@for script in $$(grep -l '^from picture' examples/*.py); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

package: $(READY)  ## build wheel and sdist into dist/, check them, install each into an empty environment and use it
	@$(BIN)/python -m pip install -qq --disable-pip-version-check build twine
	@rm -rf dist && $(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python -m pytest -q tests/test_release.py

clean:  ## remove the environment and every cache
	@rm -rf $(VENV) .venv-oldest .venv-newest .pytest_cache .ruff_cache .import_linter_cache dist build site
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@test -x $(BIN)/python || { echo "== creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing natkal and its test tools into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	@touch $@

$(DOCS_READY): $(READY)
	@echo "== installing what the site needs"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[docs]'
	@touch $@
