"""A child of a fork holds nothing of its parent, and the end of the child takes nothing from the parent."""

from __future__ import annotations

from tests._support.helpers import eventually
from tests._support.kinds import ROWS


def test_forks(visitors, there, row_name):
    row = ROWS[row_name]
    one = visitors(row_name, "sync")
    eventually(lambda: one.ask("inside"))
    busy = row.busy(there)
    assert one.ask("fork") == 0, "the child has a lease"
    assert row.busy(there) == busy
    assert one.ask("inside")
    one.ask("leave")
    if not row.endless:
        eventually(lambda: one.ask("ended"))
        assert one.ask("error") is None
