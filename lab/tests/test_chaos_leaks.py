"""The trial of leaks: Handfast passes, and what is left behind is detected."""

from __future__ import annotations

import pytest

from handfast_lab.chaos.trials import leaks
from handfast_lab.rivals import OURS, OURS_AIO
from lab.tests._support.planted import Leaky, planted


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda contender: contender.name)
def test_handfast_leaks_nothing(contender):
    (figure,) = leaks.trial(contender, 400, 1, lambda _: None)
    assert (figure.bad, figure.examples) == (0, ())
    assert figure.tried >= 300


def test_leaks_are_detected():
    (figure,) = leaks.trial(planted(Leaky), 2000, 1, lambda _: None)
    assert figure.measured["more keys"] >= 300
    assert figure.measured["more connections"] >= 3
    assert figure.measured["memory, bytes an operation"] > 1000
    assert figure.bad > 300
