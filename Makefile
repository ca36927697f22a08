# Two commands are enough: `make demo` and `make test`. Every target sets up .venv when it has to.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo results test test-slow test-browser check speed docs format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       a first look: what adaptation buys, on real images"
	@echo "make results    all results of the built-in networks and the page about them, hours; what is there is not run again"
	@echo "make test       all tests but the slow ones"
	@echo "make test-slow  the slow ones"
	@echo "make test-browser  the report's page in Chromium, which it installs on Debian"
	@echo "make check      lint, format and types"
	@echo "make speed      the speed figures, as ratios"
	@echo "make docs       the documentation, into site/"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"covshift needs Python 3.11 to 3.13, got {v[0]}.{v[1]}; say e.g. make PYTHON=python3.12")'
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv  # also where one was killed before it had pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,timm,report,ray]'
	@touch $@

demo: $(READY)
	$(BIN)/covshift bench run --builtin --out demo
	$(BIN)/covshift report demo --out demo/report

results: $(READY)
	$(BIN)/covshift bench run --config results/suite.yaml --out results
	$(BIN)/covshift report results --measure 1000 --readme results/README.md
	ln -sf ../results/README.md docs/results.md  # one file, which is in the documentation, too
	cp report/figures/corruptions-resnet20.svg docs/assets/builtin.svg

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

test-browser: $(READY)
	(command -v chromium && command -v chromedriver) || apt-get install -y --no-install-recommends chromium chromium-driver \
		|| sudo apt-get install -y --no-install-recommends chromium chromium-driver
	$(BIN)/python -m pytest -m browser

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

speed: $(READY)
	$(BIN)/python benchmarks/adapt.py
	$(BIN)/python benchmarks/corruptions.py
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/sweep.py speed

docs: $(READY)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache
