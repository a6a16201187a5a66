"""The scripted driver and the fake clock: protocols against prepared replies, and failures if a reply does not fit.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest

from handfast.testing import FakeClock


def test_fake_clock_advances_only_by_its_methods_and_never_back():
    clock = FakeClock()
    assert clock() == clock() == 100.0
    clock.sleep(1.5)
    clock.go_to(101.0)
    assert clock() == 101.5
    clock.go_to(200)
    assert clock() == 200
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="monotonic"):
            clock.sleep(wrong)
    assert "200" in repr(clock)
