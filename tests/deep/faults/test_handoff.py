"""A lease that is handed over is worth its ttl: its receiver confirms it before the caller runs, and reads the reply later.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest

from handfast import AcquireTimeout
from tests._support.helpers import eventually
from tests.gate.faults.test_handoff import CLAIM_S, TTL_S


def test_a_process_that_is_stopped_right_after_a_handoff_keeps_its_lease(hf, actors):
    (actor,) = actors()
    held = hf.lock("a").acquire()
    actor.tell("acquire", ttl=TTL_S)
    eventually(lambda: hf.lock("a").status().waiting)
    held.release()
    assert actor.answer()
    actor.freeze()
    with pytest.raises(AcquireTimeout):
        hf.lock("a").acquire(timeout=CLAIM_S + 0.5)
    actor.thaw()
    assert actor.ask("lost") is False
    assert actor.ask("release") is True
