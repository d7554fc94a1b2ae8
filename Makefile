# Two commands do everything on a fresh machine: `make audit` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: audit test check bench docs format clean

audit: $(VENV)/.installed ## audit the embedded data set, write report.html
	$(BIN)/scapegoat audit --out audit --report report.html

test: $(VENV)/.dev browser ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal tests

check: $(VENV)/.dev ## format, lint, types, direction of imports
	$(BIN)/ruff format --check src tests examples docs/screenshots.py
	$(BIN)/ruff check src tests examples docs/screenshots.py
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format src tests examples docs/screenshots.py
	$(BIN)/ruff check --fix src tests examples docs/screenshots.py

bench: $(VENV)/.dev ## every benchmark, as ratios measured in one run
	for what in round attack aggregation sweep flower; do echo "== $$what"; $(BIN)/scapegoat bench $$what || exit 1; done

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed

.PHONY: browser
browser: # the page tests drive a real Chromium
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  echo "Chromium is wanted for the page tests; installing it"; \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
	  else echo "No Chromium found: install one (Debian: sudo apt-get install chromium) and run make test again."; exit 1; fi; }

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
