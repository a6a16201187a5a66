"""What makes the gate independent of the speed of the machine."""

from __future__ import annotations

import sys

import pytest

from tests._support.helpers import BOUND_S


@pytest.fixture(scope="module", autouse=True)
def patience(request):
    """Let clients wait for a server that stands still, also where a caller has little time: here a late reply is no outage."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("handfast.") and not request.module.__name__.startswith("tests.gate.unit."):
                for constant in ("MIN_REPLY_S", "UNDO_WAIT"):
                    if constant in vars(module):
                        patch.setattr(module, constant, BOUND_S)
        yield
