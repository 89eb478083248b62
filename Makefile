# Names commands and nothing more: what has an `if` in it is Python.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check
NMTKIT = .venv/bin/nmtkit
# Tests run two processes at a time, so each computes with one thread.
PYTEST = OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -n 2 --dist loadfile

.PHONY: demo test test-all lint commands install lock reproduce-base reproduce-big clean

# The whole chain on the demo corpus: no network, a few minutes.
demo: install
	$(NMTKIT) run demo

# What every change must pass: format, lint, types, tests.
test: lint
	$(PYTEST)

# The same with the tests that take minutes.
test-all: lint
	$(PYTEST) -m "not gpu and not network"

lint: install
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

# COMMANDS.md, which a test compares with what the commands say.
commands: install
	.venv/bin/python tests/command_help.py > COMMANDS.md

# Table 2 on newstest2014: 27.3 (base) and 28.4 (big), compound-split BLEU with quotes replaced.
reproduce-base: install
	$(NMTKIT) prepare wmt14-en-de-base
	$(NMTKIT) train wmt14-en-de-base
	$(NMTKIT) average wmt14-en-de-base
	$(NMTKIT) translate wmt14-en-de-base
	$(NMTKIT) score wmt14-en-de-base

reproduce-big: install
	$(NMTKIT) prepare wmt14-en-de-big
	$(NMTKIT) train wmt14-en-de-big
	$(NMTKIT) average wmt14-en-de-big
	$(NMTKIT) translate wmt14-en-de-big
	$(NMTKIT) score wmt14-en-de-big

install: .venv/installed

# Every file is compared with its hash in requirements.lock, but for torch's own and the CUDA
# libraries that only torch needs: which build of it fits depends on the machine.
.venv/installed: pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nmtkit needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(PIP) --no-deps --require-hashes -r requirements.lock
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

# The hashes of all files of the versions in constraints.txt, for every platform; it needs uv.
lock:
	grep -v '^torch==' constraints.txt | uv pip compile --quiet --no-deps --universal \
		--python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --output-file requirements.lock -

# Keeps runs/: artifacts and downloads are nobody's to delete but yours.
clean:
	rm -rf .venv
