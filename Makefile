# Two commands do everything on a fresh machine: `make audit` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The scripts of the report in the order in which the page has them.
SCRIPTS := theme chart panels rounds paper plan page
CHECKED := src tests benchmarks results examples docs/screenshots.py

.PHONY: audit test check bench results docs wheel format clean

audit: $(VENV)/.installed ## audit the embedded data set, write report.html
	$(BIN)/scapegoat audit --out audit --report report.html

# One thread each: workers with several get in each other's way, and take twice as long. One worker more than there are
# cores, since tests of live federations mostly wait.
test: $(VENV)/.dev browser ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal tests

check: $(VENV)/.dev ## format, lint (the page's scripts too), types, direction of imports
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports
	@mkdir -p build && cat $(SCRIPTS:%=src/scapegoat/report/assets/%.js) > build/page.js
	$(BIN)/oxlint -c .oxlintrc.json --deny-warnings build/page.js

format: $(VENV)/.dev
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

bench: $(VENV)/.dev ## every benchmark, as ratios measured in one run; ONLY=round for one, BENCH_JSON=1, QUICK=1, DEVICE=cuda
	@$(BIN)/python -m benchmarks $(ONLY) $(if $(BENCH_JSON),--json) $(if $(QUICK),--quick) $(if $(DEVICE),--device $(DEVICE))

results: $(VENV)/.dev ## the page of the paper's claims, from the result files in results/
	$(BIN)/python -m results page results --out results/README.md

wheel: $(VENV)/.dev ## build the wheel, install it into a fresh environment, audit from an empty folder
	rm -rf build/wheel && mkdir -p build/wheel/empty
	$(BIN)/pip wheel -q --no-deps -w build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install -q -c constraints.txt build/wheel/*.whl
	build/wheel/venv/bin/pip check
	cd build/wheel/empty && ../venv/bin/scapegoat audit --rounds 5 && test -s report.html
	rm -rf build/wheel

docs: $(VENV)/.dev ## build the site, strictly
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
browser: # the page tests drive a real Chromium; without one they are skipped, and counted, but in CI that is a failure
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && echo "Installing Chromium for the page tests" \
	    && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || { \
	  echo "No Chromium found: the page tests will be skipped (Debian: sudo apt-get install chromium)"; [ -z "$$CI" ]; }

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
