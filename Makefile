PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check
# One on the PATH, or the pinned one.
UV = UV_HTTP_RETRIES=1 $$(command -v uv || echo .venv/bin/uv) pip install --quiet \
	--python .venv/bin/python
NMTKIT = .venv/bin/nmtkit
# Two test processes run at a time, with one thread each.
PYTEST = OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -n 2 --dist loadfile
# Let every library compute as on a processor without AVX-512, which rounds otherwise.
AVX2 = ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	CT2_FORCE_CPU_ISA=AVX2

.PHONY: demo test test-all lint commands install lock reproduce-base reproduce-big clean

# All stages on the demo corpus, in minutes. Only the installation needs the network.
demo: install
	$(NMTKIT) run demo

# Checks before every commit: format, lint, types, tests.
test: lint
	$(PYTEST)

# Also the slow tests, with more examples of each property; then the tests that compute with models
# once more, rounded as on processors without AVX-512.
test-all: lint
	$(PYTEST) -m "not gpu and not network" --hypothesis-profile=many
	$(AVX2) $(PYTEST) tests/decoding tests/fast tests/training tests/system

lint: install
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

# COMMANDS.md, which a test compares with the help of all commands.
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

# Every file is compared with its hash in requirements.lock, except for torch and its CUDA
# libraries: which build fits depends on the machine, and on pip's settings.
#
# uv takes seconds where pip takes a minute. It does not read pip's settings: if it cannot reach the
# index, pip installs all.
.venv/installed: pyproject.toml constraints.txt requirements.lock requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nmtkit needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	command -v uv || $(PIP) --no-deps --require-hashes -r requirements-uv.lock || true
	$(UV) --no-deps --require-hashes -r requirements.lock || \
		$(PIP) --no-deps --require-hashes -r requirements.lock
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

# Hashes of all files of the versions in constraints.txt, for every platform. Needs uv.
COMPILE = uv pip compile --quiet --no-deps --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make lock"
lock:
	grep -Ev '^(torch|uv)==' constraints.txt | $(COMPILE) --output-file requirements.lock -
	grep '^uv==' constraints.txt | $(COMPILE) --output-file requirements-uv.lock -

# Keeps runs/, your artifacts and downloads.
clean:
	rm -rf .venv
