"""The signals of ``handfast run`` in a finalizer, which ignores what is raised in it.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import signal
import time

import pytest

from handfast.cli.supervision.signals import Interrupted, Signals


class Finalized:
    """Gets a signal while it is finalized."""

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_in_a_finalizer_ends_the_wait_when_that_is_over():
    with pytest.raises(Interrupted) as caught, Signals():
        Finalized()
        time.sleep(10)
    assert caught.value.number == signal.SIGTERM


def test_a_signal_that_is_raised_again_in_a_finalizer_is_raised_once_more():
    class Slow:
        def __del__(self):
            time.sleep(10)

    with pytest.raises(Interrupted) as caught, Signals():
        Finalized()
        Slow()
        time.sleep(10)
    assert caught.value.number == signal.SIGTERM


def test_a_signal_in_a_finalizer_right_before_the_program_starts_is_for_the_program():
    with Signals() as signals:
        Finalized()
        signals.collect()
        time.sleep(0.05)
        assert signal.SIGTERM in signals.wait(0)
