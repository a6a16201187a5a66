# What a contributor runs. Each target makes .venv, installs what it needs and runs.
# PYTHON names another interpreter: make test PYTHON=python3.13
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # with it, pytest rewrites every test file in every run

.PHONY: demo test gate deep matrix release-check lint docs oldest dev

demo: .venv/demo.done
	$(BIN)/handfast demo

test: dev
	$(BIN)/python -m pytest

# What decides whether a change lands. .ci/run installs what it needs beyond Python packages.
gate: test
	$(MAKE) --jobs 2 --output-sync lint docs oldest

# All else, in parts that may run alone: `.venv/bin/python tools/deep.py --list` shows them.
deep: dev
	$(BIN)/python tools/deep.py

# Every server with the oldest and the newest redis-py, half an hour. It takes some servers from other releases of Debian.
# With URL=redis://… that server instead, with what tells whether leases are safe there.
matrix: dev
ifdef URL
	$(BIN)/handfast doctor --url $(URL)
	$(BIN)/handfast bench lock --url $(URL) --only handfast
	$(BIN)/handfast bench semaphore --url $(URL) --only handfast
else
	$(BIN)/nox --session matrix
endif

# Build the files of a release in dist/ and try them in empty environments, as docs/design/release.md describes.
# TAG=v0.2.0 also compares the version and the changelog with the tag.
release-check: dev
	rm -rf dist
	for project in . lint lab; do $(BIN)/uv build --quiet --out-dir dist $$project || exit 1; done
	$(BIN)/uv tool run twine check --strict dist/*.whl dist/*.tar.gz
	HANDFAST_DIST=dist HANDFAST_TAG=$(TAG) $(BIN)/python -m pytest lab/tests/test_release.py

lint: dev
	$(BIN)/nox --session lint types

docs: dev
	$(BIN)/nox --session docs

oldest: dev
	$(BIN)/nox --no-error-on-missing-interpreters --session oldest

dev: .venv/dev.done

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

.venv/dev.done: .venv/bin/python pyproject.toml lint/pyproject.toml lab/pyproject.toml
	$(BIN)/python -m pip install --quiet uv  # five times faster than pip
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[demo]' --editable lint --editable 'lab[limiters,once]' --group dev --group docs
	touch $@
