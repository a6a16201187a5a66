"""The signals of ``handfast run`` in a finalizer, which ignores what is raised in it."""

from __future__ import annotations

import signal
import sys

from handfast.cli.supervision.signals import Signals


def test_other_errors_in_finalizers_are_reported_as_before(monkeypatch):
    class Failing:
        def __del__(self):
            raise ZeroDivisionError

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: reported.append(ignored.exc_type))
    hook, handler = sys.unraisablehook, signal.getsignal(signal.SIGALRM)
    with Signals():
        Failing()
    assert reported == [ZeroDivisionError]
    assert (sys.unraisablehook, signal.getsignal(signal.SIGALRM)) == (hook, handler)
