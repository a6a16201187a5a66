"""A signal handler or a finalizer may use a client in the middle of whatever the interrupted thread does with it."""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path

from handfast import Handfast
from handfast._drivers import sync

DRIVER = str(Path(sync.__file__).parent)


def call_at(step, call, handler):
    """Call a function; before the given line of the sync driver that it reaches, call the handler.

    Return whether it was reached.
    """
    reached = 0

    def trace(frame, event, _arg):
        nonlocal reached
        if not frame.f_code.co_filename.startswith(DRIVER):
            return None
        if event == "line":
            reached += 1
            if reached == step:
                sys.settrace(None)
                handler()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return reached >= step


def test_a_handler_may_acquire_and_release_at_any_line_of_the_driver(server, raw):
    """The first lease of a client starts its renewal thread: a handler that comes then starts it instead."""
    for step in itertools.count(1):
        with Handfast(server.url) as hf:
            outcome = []

            def use(name, hf=hf):
                lease = hf.lock(name, ttl=0.2).acquire(timeout=5)
                hf._driver._here.renewer._sending = True  # so that the release passes the gate
                assert lease.release() is True

            def run(step=step, use=use, outcome=outcome):
                outcome.append(call_at(step, lambda: use("a"), lambda: use("b")))

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(20)
            assert not thread.is_alive(), f"a handler at line {step} never returns"
        if outcome == [False]:
            break
    assert step > 50
