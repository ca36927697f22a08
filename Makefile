# Two commands are enough: `make demo` and `make test`. Every target sets up .venv when it has to.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LOWEST := .venv-lowest
# Coverage is not counted in CI, where time is short. How it sees lines: Python's own monitoring, which costs next to nothing, is there from 3.12 on.
TRACER = $(shell $(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')
COMPILE := $(BIN)/uv pip compile --quiet --no-annotate --strip-extras --custom-compile-command "make lock" -c constraints.txt

.PHONY: demo results test test-slow test-browser test-lowest lock check speed docs format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       a first look: what adaptation buys, on real images"
	@echo "make results    all stored results and the pages about them; first prints the hours it will take; what is there is not run again"
	@echo "make test       all tests but the slow ones, and the share of lines that they run"
	@echo "make test-slow  the slow ones"
	@echo "make test-browser  the report's page in Chromium, which it installs on Debian"
	@echo "make test-lowest  the core's tests, with the lowest versions that pyproject.toml allows"
	@echo "make check      lint, format and types"
	@echo "make speed      the speed figures beside their goals, and what falls short"
	@echo "make docs       the documentation, into site/"
	@echo "make lock       the versions for development, anew: requirements-dev.lock"

# pip's settings may say where a build of torch for this machine is; uv does not read these, but resolves the rest in seconds.
$(READY): pyproject.toml constraints.txt requirements-dev.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"covshift needs Python 3.11 to 3.13, got {v[0]}.{v[1]}; say e.g. make PYTHON=python3.12")'
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv  # also where one was killed before it had pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c requirements-dev.lock torch torchvision uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -c requirements-dev.lock -e '.[dev,timm,report,ray,onnx,serve]'
	@touch $@

demo: $(READY)
	$(BIN)/covshift bench run --builtin --out demo
	$(BIN)/covshift report demo --out demo/report

results: $(READY)
	$(BIN)/python results/everything.py
	ln -sf ../../results/tables.md docs/results/all.md  # one file, which is in the documentation, too
	cp report/figures/corruptions-resnet20.svg docs/assets/builtin.svg

test: $(READY)
	COVERAGE_CORE=$(TRACER) $(BIN)/python -m pytest -n 2 -m "not slow and not browser" $(if $(CI),,--cov --cov-report=)
	$(if $(CI),,@echo "coverage: $$($(BIN)/coverage report --format=total) % of the lines of src/covshift")

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

test-browser: $(READY)
	(command -v chromium && command -v chromedriver) || apt-get install -y --no-install-recommends chromium chromium-driver \
		|| sudo apt-get install -y --no-install-recommends chromium chromium-driver
	$(BIN)/python -m pytest -m browser

# Old packages may warn of the new torch. torch and torchvision stay as constraints.txt has them: their oldest builds are several gigabytes of CUDA.
test-lowest: $(READY)
	$(PYTHON) -m venv $(LOWEST)
	$(COMPILE) --resolution lowest-direct --extra timm --no-emit-package torch --no-emit-package torchvision \
		pyproject.toml --output-file $(LOWEST)/versions.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c $(LOWEST)/versions.txt \
		-e '.[timm]' pytest hypothesis POT
	$(LOWEST)/bin/python -m pytest -q -W ignore::DeprecationWarning -m "not slow and not browser" tests/core tests/corruptions tests/data tests/shift

lock: $(READY)
	$(COMPILE) --universal --all-extras --no-emit-package torch --no-emit-package torchvision \
		pyproject.toml --output-file requirements-dev.lock

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

speed: export COVSHIFT_SPEED = $(CURDIR)/.speed.jsonl
speed: $(READY)
	rm -f $(COVSHIFT_SPEED)
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/single.py
	$(BIN)/python benchmarks/adapt.py --turns 2
	$(BIN)/python benchmarks/anchors.py --turns 2 --images 16
	$(BIN)/python benchmarks/corruptions.py --repeats 2 --images 16
	$(BIN)/python benchmarks/export.py --turns 2
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/answers.py $(wildcard demo/resnet20) --images 1000 --turns 2
	$(BIN)/python benchmarks/sweep.py speed large --images 256 --turns 2
	$(BIN)/python benchmarks/subjects.py $(COVSHIFT_SPEED)

docs: $(READY)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv $(LOWEST) site .coverage .mypy_cache .pytest_cache .ruff_cache
