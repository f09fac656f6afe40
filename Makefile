# Everything runs in .venv, made from requirements/constraints.txt when it is missing or out of date.
# PYTHON chooses the interpreter (3.11 or newer): make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SLOW_READY := $(VENV)/.ready-slow
SEEDS ?= 100
# Many tests wait for machines to come up, the slow ones most: as many workers for each core.
A_CORE := 2
slow: A_CORE := 3
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min($(A_CORE) * (os.cpu_count() or 1), 24))')
# Files in their order: the longest tests are alone in theirs, and would else come last.
PYTEST = $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NOW := 2026-11-21T18:00:00Z
SOURCES := pricing providers router terraform tests docs

# Hundreds of processes import the same modules: without bytecode each of them compiles all anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: plan console demo drill smoke-aws smoke-gcp smoke-azure test check style types quick slow walk bench calibrate fit validate generate docs format clean help

$(READY): pyproject.toml requirements/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "stepfare needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e '.[dev,aws,gcp,azure,embedded,notify,oidc,postgres]'
	@touch $@

$(SLOW_READY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e '.[slow]'
	@touch $@

plan: $(READY) ## tonight's placement of the example jobs, on the embedded prices at a fixed time
	@$(BIN)/stepfare plan examples/nightly --book embedded --limits examples/nightly/limits.yaml --now $(NOW) --gap 0.01 --time-limit 1h

console: $(READY) ## tonight's plan, a quote, jobs and a month of made-up costs in your browser
	@$(BIN)/stepfare serve --demo

demo: $(READY) ## plan, apply, train and finish on a simulated cloud on this machine
	@$(BIN)/stepfare demo

drill: $(READY) ## the fault campaign: 100 random worlds in which everything fails, about a quarter of an hour
	@$(BIN)/python -m tests.bench.campaign --seeds $(SEEDS)

# DRY=1: services and machines of this computer. ARGS: --deploy FILE and more (docs/first-account.md).
smoke-aws: $(READY) ## a first run on an AWS account, for less than two dollars; DRY=1: for none
smoke-gcp: $(READY) ## the same on Google Cloud
smoke-azure: $(READY) ## the same on Azure
smoke-aws smoke-gcp smoke-azure:
	@$(BIN)/python -m tests.smoke $(@:smoke-%=%) $(if $(DRY),--dry) $(ARGS)

check: $(READY) ## format, lint, types, import contracts
	@$(MAKE) --no-print-directory -j 2 -Otarget style types

style: $(READY)
	$(BIN)/ruff format --check --quiet $(SOURCES)
	$(BIN)/ruff check --quiet $(SOURCES)
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

test: style ## check, and every test but the slow ones
	@$(MAKE) --no-print-directory -j 2 types quick

quick: $(READY)
	$(PYTEST) -m "not slow"

slow: $(SLOW_READY) ## the slow tests: long properties, notebooks, browsers
	$(PYTEST) -m slow

walk: $(READY) ## faults at every stage of apply and destroy and of a migration (a quarter of an hour)
	@$(BIN)/python -m tests.bench.fault_walk

bench: $(READY) ## time to plan, to make 1,000 nodes beside plain Terraform, to answer them
	@$(BIN)/python -m tests.bench.run

calibrate: $(READY) ## whether quotes and plans hold on recorded availability that no model saw (some twenty minutes)
	@$(BIN)/python -m tests.bench.calibrate
	@$(BIN)/python -m tests.bench.promises

fit: $(READY) ## fit the speed model on published runs (../shared/facts; skipped without) and store its coefficients
	@$(BIN)/python -m tests.bench.fit_speed

validate: $(READY) ## error of estimated speeds on published runs that their fit never saw (two minutes)
	@$(BIN)/python -m tests.bench.validate_speed

KINDS := job limits clouds pool sandbox deploy plan quote estimate showback report openapi

generate: $(READY) ## write anew what is generated: schemas, reference pages, the manual page, the picture of rooms
	@for kind in $(KINDS); do $(BIN)/stepfare schema $$kind --out docs/schema/$$kind.json || exit; done
	@$(BIN)/python -m docs.reference_pages
	@$(BIN)/python -m docs.man_page
	@$(BIN)/python docs/room_graph.py

docs: $(READY) ## build the documentation as a site into site/
	$(BIN)/mkdocs build --strict --quiet

format: $(READY) ## rewrite the sources in the one format, with safe fixes
	$(BIN)/ruff check --quiet --fix $(SOURCES)
	$(BIN)/ruff format --quiet $(SOURCES)

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist out site
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
