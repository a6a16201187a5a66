"""Names and namespaces that are meant to break out: their keys stay apart, and rights to one open nothing of another.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os

import pytest

from handfast_lab.chaos.trials import names
from handfast_lab.rivals import OURS

NAMES = int(os.environ.get("HANDFAST_NAMES", "2000"))
"""A million takes five minutes."""


@pytest.mark.timeout(3600)
def test_hostile_names_have_separate_keys_one_slot_and_confined_rights():
    figures = names.trial(OURS, NAMES, 0, lambda _: None)
    assert [(figure.bad, figure.examples) for figure in figures] == [(0, ())] * 3
    assert all(figure.tried > NAMES for figure in figures)
