# make repro   everything, from the corpus to the report      make test   the whole test suite
# make ui      MLflow on the local store                      make lint   ruff and mypy
# make study   list the studies of experiments/; NAME=quickstart puts one into params.yaml
# make bench   speed against other tools (benchmarks/README.md); BENCH="train --shapes cpu" chooses
#
# JOBS=4 trains four runs at a time (default: as many as pay off on this machine; 1: plain `dvc repro`).
# PYTHON=python3.12 chooses the interpreter; TORCH=keep leaves the torch that is installed in .venv alone.

PYTHON ?= python3
PORT ?= 5000
BIN := $(CURDIR)/.venv/bin
INSTALLED := .venv/installed
WITH := PATH="$(BIN):$$PATH" PYTHONPATH=src

.PHONY: repro test test-fast bench ui lint study setup clean

repro: setup
	$(WITH) python -m isoflop.engine $(if $(JOBS),--jobs $(JOBS))

test: setup
	$(WITH) pytest

test-fast: setup
	$(WITH) pytest -m "not slow"

lint: setup
	$(WITH) ruff check .
	$(WITH) ruff format --check .
	$(WITH) mypy

bench: setup
	$(WITH) python benchmarks/bench.py $(BENCH)

ui: setup
	@echo "MLflow on http://127.0.0.1:$(PORT)"
	$(WITH) MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_DISABLE_TELEMETRY=true mlflow server --port $(PORT) \
		--backend-store-uri "$${MLFLOW_TRACKING_URI:-sqlite:///$(CURDIR)/mlflow.db}" \
		--artifacts-destination "$(CURDIR)/mlartifacts"

study: setup
	@$(WITH) python -m isoflop.study $(if $(NAME),apply $(NAME),list)

# A downloaded zip has no git history: DVC is told so. `dvc repro` then works, `dvc exp run` does not. Where git comes
# later, DVC is told to use it again.
setup: $(INSTALLED)
	@if git rev-parse --git-dir >/dev/null 2>&1 || [ -e .git ]; then \
		if grep -qs no_scm .dvc/config.local; then .venv/bin/dvc config --local --unset core.no_scm; fi; \
	elif ! grep -qs no_scm .dvc/config.local; then \
		echo "no git repository: dvc repro works, dvc exp needs a clone"; \
		.venv/bin/dvc config --local core.no_scm true; \
	fi

$(INSTALLED): requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"isoflop needs Python 3.11 or newer, $(PYTHON) is {v.major}.{v.minor}: make PYTHON=python3.11 ...")'
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@echo "installing requirements.txt into .venv (once; about 2 GB with a CPU build of torch)"
	@if [ "$(TORCH)" = keep ]; then grep -v '^torch==' requirements.txt; else cat requirements.txt; fi > .venv/wanted.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/wanted.txt
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
