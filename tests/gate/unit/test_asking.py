"""Protocols that objects without leases share: how often a call is repeated."""

from __future__ import annotations

from itertools import repeat

import pytest

from handfast._engine.effects import Answer
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.packing import doubles
from handfast._protocol.asking import tell


@pytest.mark.parametrize(
    ("left", "calls"),
    [
        ([0], 1),
        ([50, 0], 2),
        ([250, 150, 50, 0], 4),
        (repeat(250), 4),  # all that were told ask again before the next call
        ([150, 250, 250], 3),
        ([250, 0], 2),  # others have told them meanwhile
    ],
)
def test_a_call_that_tells_watchers_is_repeated_for_those_that_were_there_at_first(left, calls):
    request, made = ObjectRequest(KeySet("hf", "group", "a")), 0
    steps, more = tell(lambda: request.call("ring")), iter(left)
    next(steps)
    with pytest.raises(StopIteration):
        while True:
            made += 1
            steps.send(Answer(0.0, b"told " + doubles(next(more))))
    assert made == calls
