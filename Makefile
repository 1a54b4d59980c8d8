# Everything a fresh machine needs is Python 3.11 or newer, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
TESTABLE := $(VENV)/testable
READY := $(VENV)/ready
COMPILED := $(VENV)/compiled
IMPORTED := $(VENV)/imported
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
FLOWER := .venv-flower
# Python keeps what it compiles when a module is first imported, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python tests/support/run_tests.py
# In a fresh clone one core installs what tests need while the other compiles what algorithms need.
PREPARE = @$(MAKE) --no-print-directory --jobs=2 $(IMPORTED) $(COMPILED)

.PHONY: reproduce test test-all test-fast test-gpu lint types check dist check-dist benchmark leaderboard leaderboard-document architecture docs check-docs flower-venv clean

# It needs none of the tools of developers, whose installation takes longer than some experiments.
reproduce: $(INSTALLED)
	$(BIN)/fed-ucbvi reproduce --out results --overwrite

# All tests but those marked full: tests of fed_ucbvi.paper, and matrices of cases of which it runs a part. Up to three
# tests that fail get a second try.
test: $(INSTALLED)
	$(PREPARE)
	$(PYTEST) -m "not full"
	@echo "Left out, and run by make test-all: tests of fed_ucbvi.paper (baselines, bounds, experiments, reports) and full matrices of cases."

# What make test leaves out comes on top; continuous integration runs this.
test-all: test $(READY)
	$(PYTEST) -m full

# What can be run after every change, in about two minutes.
test-fast: $(INSTALLED)
	$(PREPARE)
	$(PYTEST) -m "not full and not slow and not network and not browser and not flower"

# The cuda driver on a real GPU; where there is none, it skips and says so.
test-gpu: $(READY)
	$(BIN)/python -m pytest tests/engine/test_cuda.py -rs -k "not simulator"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

check: test lint types

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build

# What newcomers get, in environments of their own: the newest and the oldest versions that the bounds admit, and the latest Python.
check-dist: dist
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/support/shipped_wheel.py dist

benchmark: $(READY)
	$(BIN)/python benchmarks/speed.py

# The documentation site, in build/docs: notebooks are executed, warnings are errors, links are checked.
docs: $(READY)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m sphinx -b html -j auto -q -W --keep-going docs build/docs
	$(BIN)/python docs/check_site.py build/docs

# Every shell command in the documents, run as it stands.
check-docs: $(READY)
	$(BIN)/python docs/run_commands.py

# The standing comparison, docs/leaderboard.md: all runs, about ten minutes on two cores; stopped, it goes on where it was.
leaderboard: $(READY)
	$(BIN)/fed-ucbvi leaderboard --again --store results/leaderboard/runs --out results/leaderboard
	cp results/leaderboard/leaderboard.csv src/fed_ucbvi/paper/leaderboard.csv
	cp results/leaderboard/leaderboard*.md docs

# The document alone, from the rows that are stored.
leaderboard-document: $(READY)
	$(BIN)/fed-ucbvi leaderboard --out results/leaderboard
	cp results/leaderboard/leaderboard*.md docs

architecture: $(READY)
	$(BIN)/python docs/draw_floors.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"fed-ucbvi needs Python 3.11 or newer; {sys.executable} is {v[0]}.{v[1]}. Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(COMPILED): $(INSTALLED)
	$(BIN)/python tests/support/compile_first.py
	touch $@

$(TESTABLE): $(INSTALLED)
	$(PIP) --editable '.[test]'
	touch $@

# Of icu-sepsis one file of tables is read, so that gym and others it asks for are left out; no extra can say that.
$(READY): $(INSTALLED)
	$(PIP) --editable '.[dev]'
	-$(PIP) --no-deps icu-sepsis
	touch $@

# Several test processes would each compile what all of them import.
$(IMPORTED): $(TESTABLE)
	-$(BIN)/python -m pytest --collect-only -qq > /dev/null
	touch $@

# Flower has bounds of its own on packages this one uses too, so it lives apart; tests/network/flower/test_flower.py makes this itself.
flower-venv: $(FLOWER)/ready

$(FLOWER)/ready: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-flower.txt \
		--editable '.[flower]'
	touch $@

clean:
	rm -rf $(VENV) $(FLOWER) results build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
