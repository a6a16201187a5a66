"""Cancellation and interrupts at chosen points.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import signal
import time

import pytest

from handfast.testing import calm, interrupt_after
from tests.gate.testing.test_testing_injection import double


@pytest.mark.timeout(60, method="thread")  # the test needs the signal for itself
def test_interrupt_after_ends_a_blocking_call():
    before = signal.getsignal(signal.SIGALRM)
    run = interrupt_after(lambda: time.sleep(60), 0.005)
    assert (run.how, run.struck) == ("stopped", 1)
    assert "lambda" in run.place
    run = interrupt_after(lambda: double(2), 60)
    assert (run.how, run.struck, run.result) == ("finished", 0, 4)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)

    def peaceful():
        calm()
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            double(1)
        return "in peace"

    run = interrupt_after(peaceful, 0.005)
    assert (run.how, run.result) == ("finished", "in peace")
