"""Fixtures of the laboratory's tests, beside those of `tests/_support/fixtures.py`."""

from __future__ import annotations

import pytest


@pytest.fixture
def wait_for_others():
    """Wait for no one: some rivals keep connections for the life of the process."""
    return lambda _raw: None
