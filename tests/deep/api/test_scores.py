"""Scores through both APIs: counts, order, lost replies and invalid arguments. A score only increases.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest

from handfast import Advance
from handfast.testing import containing
from tests.gate.api import test_scores as gate

proxy = gate.proxy
far = gate.far


# --- lost replies


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_batch_that_is_lost_several_times_is_counted_once(far, proxy, raw, what):
    scores = far.scores("seen")
    await scores.advance({f"m{number:05}": 100 * (number % 3) for number in range(0, 2000, 2)})
    lost = [getattr(proxy, what)(containing(piece), times=3) for piece in (b"m00000", b"m00999", b"m01600")]
    advance = await scores.advance({f"m{number:05}": 100 for number in range(2000)})
    assert all(fault.spent for fault in lost)
    old = [100 * (number % 3) for number in range(0, 2000, 2)]
    assert advance == Advance(added=1000, moved=old.count(0), stale=old.count(100) + old.count(200))
