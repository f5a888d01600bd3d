# Two commands to know: `make demo` and `make test`. Neither needs root.
# HITMAP_PYTHON picks another interpreter (3.11 or newer); VENV another place for the environment.

VENV ?= .venv
BIN := $(VENV)/bin
HITMAP_PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: demo test check laws bench format lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    install and see which layer a lost prefix cache shows up in (a live LLM server, under three minutes)"
	@echo "make test    install what the checks need and run all of them"
	@echo "make laws    property tests on examples drawn anew"
	@echo "make bench   ingest, crash, load, engine, attribution and replay figures of this machine (about fifty minutes)"
	@echo "make check   style, types and dependency arrows only"
	@echo "make format  rewrite the code in the project's style"
	@echo "make lock    renew constraints.txt from what is installed"
	@echo "make clean   remove the environment and caches"

$(BIN)/python:
	@test -n "$(HITMAP_PYTHON)" || { echo "hitmap needs Python 3.11 or newer; set HITMAP_PYTHON=/path/to/python3"; exit 1; }
	@$(HITMAP_PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update && apt-get install -y python3-venv; \
		else echo "Python's venv module is missing: apt-get install python3-venv, then try again"; exit 1; fi; }
	$(HITMAP_PYTHON) -m venv $(VENV)

$(VENV)/.server: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[server]'
	@touch $@

$(VENV)/.engine: $(VENV)/.server
	$(PIP_INSTALL) -e '.[server,engine]'
	@touch $@

$(VENV)/.dev: $(VENV)/.engine
	$(PIP_INSTALL) -e '.[server,engine,dashboard,cupti,dev]'
	@touch $@

demo: $(VENV)/.engine
	$(BIN)/hitmap demo

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Most tests wait for sockets and other processes, so three share two cores. A file's tests stay with one process, which
# has a store of its own; those marked `alone` measure what others would disturb, and run after them.
JOBS ?= 3

# See hitmap/__init__.py, which not all tests load: those of attribution took 30 s of CPU for 17.
export OPENBLAS_NUM_THREADS ?= 1

# The gate's verdict is about the change: laws are held against the same examples each time. `make laws` draws others.
export HYPOTHESIS_PROFILE ?= gate

# The store's door is tried with the real curl, the dashboard with a real browser, probes on the real kernel; without them
# those tests are skipped.
test: check
	@for tool in curl chromium; do command -v $$tool >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update && apt-get install -y $$tool; } \
		|| echo "$$tool is not installed: its tests are skipped"; done
	@sh deploy/ebpf.sh || true
	$(BIN)/pytest -m 'not alone' -n $(JOBS) --dist loadfile --no-loadscope-reorder
	$(BIN)/pytest -m alone $$(grep -rl --include='test_*.py' 'mark[.]alone' tests)

laws: export HYPOTHESIS_PROFILE = hitmap
laws: $(VENV)/.dev
	$(BIN)/pytest -m 'hypothesis and not alone' -n $(JOBS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.kill
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.soak
	$(BIN)/hitmap engine bench
	$(BIN)/python -m benchmarks.probes_grpc
	$(BIN)/python -m benchmarks.probes_kernel
	$(BIN)/python -m benchmarks.probes_host
	$(BIN)/python -m benchmarks.alerts
	$(BIN)/python -m benchmarks.attribution speed
	$(BIN)/python -m benchmarks.twin --rounds 1
	$(BIN)/python -m benchmarks.nulls --runs 60
	$(BIN)/python -m benchmarks.prefix_replay
	$(BIN)/python -m benchmarks.advise --rounds 1
	$(BIN)/python -m benchmarks.advise_hashes

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.dev
	$(BIN)/pip freeze --exclude-editable | grep -v '^hitmap' | sed 's/+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
