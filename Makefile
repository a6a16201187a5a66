# The two commands that people need. Each makes .venv, installs what it needs and runs.
# PYTHON names another interpreter: make test PYTHON=python3.13
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test

demo: .venv/demo.done
	$(BIN)/handfast demo

test: .venv/test.done
	$(BIN)/python -m pytest

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

.venv/test.done: .venv/bin/python pyproject.toml lab/pyproject.toml
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[demo,lint]' --editable lab --group dev
	touch $@
