PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-all lint bench zoo soak audit-deps clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: setup            ## faces into a model, and out of its weights again
	rm -rf demo
	$(BIN)/exhume demo --out demo

test: setup            ## the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-all: setup        ## also those that take minutes or gigabytes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal
	$(BIN)/python -m pytest -m slow --timeout 3600

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup           ## side by side with the published attack
	$(BIN)/python benchmarks/pass_rate.py
	$(BIN)/exhume bench --out bench --success 1,1.25,1.5,2,3

zoo: setup             ## models as people train them, audited; renews docs/real-models.md
	$(BIN)/python benchmarks/zoo.py --out build/zoo --page docs/real-models.md

soak: setup            ## kills, full disks, memory, mutated inputs; renews the figures of docs/reliability.md
	$(BIN)/python soak/run.py --kills 20 --results build/soak

audit-deps:            ## known holes in the pinned dependencies; needs a network, and a venv of its own
	$(PYTHON) -m venv build/audit-deps
	build/audit-deps/bin/python -m pip install --quiet pip-audit
	build/audit-deps/bin/python -m pip_audit --requirement constraints.txt --no-deps

clean:
	rm -rf .venv build dist src/*.egg-info
