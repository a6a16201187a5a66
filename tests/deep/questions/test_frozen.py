"""A process is stopped for longer than its ttl: others get in. Awake again it gets LeaseLost, and a loop goes on."""

from __future__ import annotations

import pytest

from tests._support.helpers import eventually
from tests._support.kinds import ROWS
from tests.deep.questions.visitor import TTL_S


@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_frozen(visitors, there, row_name, api):
    row = ROWS[row_name]
    if not row.takes(ttl=TTL_S):
        pytest.skip("it has no ttl of its own")
    one = visitors(row_name, api)
    eventually(lambda: one.ask("inside"))
    one.freeze()
    other = visitors(row_name, api)
    eventually(lambda: other.ask("inside"))
    if row.of != "partition":
        eventually(lambda: row.busy(there) == 1 + bool(row.also(there)))
    one.thaw()
    eventually(lambda: one.ask("lost") or one.ask("begun") > 1 or one.ask("ended"))
    if row.loop:
        assert not one.ask("ended"), one.ask("error")
        other.kill()
        eventually(lambda: one.ask("begun") > 1)
        return
    for caller in (one, other):
        caller.ask("leave")
        eventually(lambda caller=caller: caller.ask("ended"))
    assert one.ask("error") in {None, "LeaseLost"}
    assert other.ask("error") is None
    eventually(lambda: not row.busy(there))
