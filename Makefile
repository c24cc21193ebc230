# Everything is installed into .venv and .cache, and no rights are needed. Outside this folder only `demo` and `queuer local`
# keep data: in /var/lib/queuer/local for root, else in ~/.local/state/queuer/local; QUEUER_LOCAL_DIR says otherwise.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
PY := .venv/bin/python
# Named after what was installed: a change of the locked packages installs anew, a new checkout date does not.
STAMP := .venv/installed-$(shell cat requirements.txt pyproject.toml | cksum | tr ' ' '-')
SOURCES := queuer tests migrations bench tools
# Each process of pytest takes one file after the other, in the order of the folders: the short tests come last.
PROCESSES ?= 2
PYTEST := $(PY) -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder
# Programs in .venv come first: Go and Node are there where the machine has none.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Install locked packages into .venv, by uv where there is one.
define install
if command -v uv >/dev/null; then \
	uv pip install --quiet --python $(PY) --require-hashes -r $(1); \
else \
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1); \
fi
endef

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Install the locked packages into .venv

$(STAMP):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv || \
		{ echo "Python's venv module is needed: install it (Debian: python3-venv)"; exit 1; }
	@echo "installing packages into .venv"
	@$(call install,requirements.txt)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@rm -f .venv/installed-*
	@touch $@

# Go builds the local cluster, Node the dashboard. Those of the machine serve where they are new enough.
.PHONY: programs
programs: setup
	@newer() { test "$$(printf '%s\n' "$$1" "$$2" | sort -V | head -1)" = "$$1"; }; \
	if ! newer 1.26 "$$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | tr -d go)" || \
		! newer 20.19 "$$(node --version 2>/dev/null | tr -d v)" || ! command -v npm >/dev/null; then \
		echo "installing Go and Node into .venv"; \
		$(call install,requirements-tools.txt); \
	fi

.PHONY: control-plane
control-plane: programs ## Build the Kubernetes programs of the local cluster, once per version
	@$(PY) -m queuer local build

.PHONY: demo
demo: control-plane web ## Start a whole cluster on this machine and play a story on it
	@$(PY) -m queuer local up
	@$(PY) -m queuer local demo

.PHONY: check
check: setup ## Check style, types and layers
	@.venv/bin/ruff check $(SOURCES)
	@.venv/bin/ruff format --check $(SOURCES)
	@.venv/bin/mypy
	@.venv/bin/lint-imports

.PHONY: test
test: check control-plane web browser ## Check everything and run all tests (PROCESSES=N: in N processes, else 2)
	@npm --prefix web run --silent check
	@npm --prefix web test --silent
	@$(PY) -m tests.programs
	@$(PYTEST)

.PHONY: e2e
e2e: control-plane ## Run the end-to-end tests on a real control plane
	@$(PY) -m tests.programs
	@$(PYTEST) tests/e2e

.PHONY: scenarios
scenarios: setup ## Run the stories of tests/scenarios, a line per expectation (ARGS=--json: one document)
	@$(PY) -m queuer sim scenario $(ARGS) tests/scenarios/*/*.yaml

.PHONY: cycles
cycles: setup ## Check 2,000 random cycles of the decision, some minutes (ARGS="--cycles N --first SEED")
	@$(PY) -m tests.solver.many_cycles $(ARGS)

.PHONY: loops
loops: setup ## Look for eviction loops in 200 worlds of 50 cycles (ARGS="--worlds N --first SEED")
	@$(PY) -m tests.solver.loops $(ARGS)

.PHONY: worlds
worlds: setup ## Compare 500 small worlds with brute force, some minutes (ARGS="--worlds N --first SEED")
	@$(PY) -m tests.solver.many_worlds $(ARGS)

.PHONY: size
size: ## Count the lines of each package, beside an earlier count and the bounds
	@$(PYTHON) tools/size.py

.PHONY: landing
landing: control-plane ## Land 500 random clusters' gangs on real kube-schedulers (ARGS="--cases N --first SEED", "--oracle": ask filters alone)
	@$(PY) -m tests.e2e.landing $(ARGS)

.PHONY: fuzz
fuzz: control-plane ## Fuzz REST by its schema, strangers' requests, job annotations and tree documents, half an hour
	@$(PY) -m pytest tests/fuzz tests/attacks/test_strangers.py -s --timeout=1800 --hypothesis-profile=fuzz

.PHONY: chaos
chaos: control-plane ## Kill the controller at every failpoint, 3 minutes a seed; storms, 12 each (ARGS="--seeds N --storms N --first SEED")
	@$(PY) -m tests.chaos $(ARGS)

.PHONY: compat
compat: control-plane ## Build Kubernetes 1.35, run story, gangs, landing, evictions on it and on 1.36 (ARGS="--version 1.35")
	@$(PY) -m tests.compat $(ARGS)

.PHONY: conformance
conformance: control-plane ## Live a job of every kind under its real controller, some minutes
	@$(PY) -m pytest tests/e2e/test_conformance.py tests/e2e/kinds_*.py tests/e2e/test_queued_pods.py tests/e2e/test_reduced.py --kinds=all
	@$(PY) -m pytest tests/docs/test_snippets.py -k howto --kinds=all

.PHONY: soak
soak: control-plane ## Run 50,000 jobs over 5 million rows of history, an hour (ARGS="--jobs N --history ROWS --minutes M --json")
	@$(PY) -m tests.soak $(ARGS)

.PHONY: test-containers
test-containers: setup ## Run the tests of the store on PostgreSQL in a container (needs a container engine)
	@$(PY) -m pytest tests/store --database=testcontainers

.PHONY: bench
bench: control-plane ## Measure in short: docs/measurements.md has the commands in full
	@$(PY) -m bench.startup
	@$(PY) -m bench.decide --nodes 160 --pending 1000 --queues 30 --seeds 5 --json
	@$(PY) -m bench.decide --nodes 640 --pending 1000 --queues 100 --seeds 5 --json
	@$(PY) -m bench.decide --nodes 640 --pending 1000 --queues 100 --seeds 2 --mix large --json
	@$(PY) -m bench.backlog
	@$(PY) -m bench.stream
	@$(PY) -m bench.preempt --sizes 64/1 64/4 160/1 --seeds 5 --json
	@$(PY) -m bench.infeasible
	@$(PY) -m bench.openb --list multigpu50 --orders 1 --json
	@$(PY) -m bench.quality --seeds 1-10 --nodes 128 --json
	@$(PY) -m bench.quality --seeds 1-10 --nodes 128 --order packed --json
	@$(PY) -m bench.rolling --seeds 2 --jobs 300 --json

.PHONY: docs
docs: setup ## Write docs/reference, policies and dashboards from the code, and build the site into build/site
	@$(PY) -m tools.reference
	@$(PY) -m tools.policies
	@$(PY) -m tools.dashboards
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "to read it with its search: $(PY) -m http.server --directory build/site --bind 127.0.0.1 8000"

.PHONY: release
release: check control-plane web ## Build wheel, chart and bill of materials into dist/, and tag them here (VERSION=0.1.0)
	@$(PY) -m tools.release $(VERSION)

.PHONY: bench-ui
bench-ui: setup web browser ## Measure the dashboard in a browser on 2,000 nodes and 12,000 jobs, some minutes
	@$(PY) -m bench.ui --json

# What the dashboard is built from; the built files go into the package.
WEB := queuer/api/pages/web/index.html
WEB_SOURCES := docs/reference/openapi.json $(shell find web -name node_modules -prune -o -type f -not -name schema.d.ts -print)

.PHONY: web
web: $(WEB) ## Build the dashboard

$(WEB): $(WEB_SOURCES) | programs
	@echo "building the dashboard"
	@npm --prefix web ci --silent
	@npm --prefix web run --silent build
	@touch $@

.PHONY: browser
browser: ## Install Chromium for the tests of the dashboard, unless there is one (Debian, as root)
	@command -v "$${QUEUER_CHROMIUM:-chromium}" >/dev/null || { apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
		{ echo "Chromium is needed: install it, or name it: export QUEUER_CHROMIUM=/path/to/chromium"; exit 1; }

.PHONY: pictures
pictures: control-plane web browser ## Take the README's pictures of the dashboard anew, from a demo of its own
	@$(PY) -m tests.e2e.pictures

.PHONY: clean
clean: ## Stop the local cluster (its data stays), remove what was installed and built here
	@if test -x $(PY); then $(PY) -m queuer local down || test $$? -eq 3; fi  # 3: there is none
	rm -rf .venv .cache build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist web/node_modules queuer/api/pages/web
