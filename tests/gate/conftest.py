"""What makes the gate independent of the speed of the machine."""

from __future__ import annotations

import sys

import pytest

from handfast._protocol import retry
from tests._support.helpers import BOUND_S


@pytest.fixture(autouse=True)
def patience(request, monkeypatch):
    """Let clients wait for a server that stands still, also where a caller has little time: here a late reply is no outage."""
    if "server" not in request.fixturenames:
        return
    for name in ("MIN_REPLY_S", "UNDO_WAIT"):
        for module in [found for found in sys.modules.values() if hasattr(found, "__name__")]:
            if module.__name__.startswith("handfast.") and name in vars(module):
                monkeypatch.setattr(module, name, BOUND_S)
    assert retry.MIN_REPLY_S == BOUND_S
