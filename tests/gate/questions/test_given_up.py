"""A call that waits is given up, by Ctrl-C, a cancellation or its timeout: it waits no more, and what others hold is theirs."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests._support.apis import SYNC
from tests._support.helpers import settled
from tests._support.kinds import OPERATED, kept_out, stopped_everywhere, until
from tests._support.objects import is_waiting

SOON_S = 0.002
"""Seconds that a call waits."""


def applies(row, api):
    waits = row.calls.wait if row.calls is not None else row.held and row.shape == "block"
    return None if waits else "no call waits"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_given_up(api, client, there, raw, row):
    async def enter_async():
        async with row.block(made):
            pytest.fail("it got in")

    def enter():
        with row.block(made):
            pytest.fail("it got in")

    def is_over():
        if row.calls is not None:
            return row.calls.forgets or not is_waiting(raw, row.of, "a")
        return row.busy(there) == busy and not OPERATED[row.of](there).status().waiting

    if row.calls is not None:
        await settled(row.calls.use(client, "warm"))
    struck = 0
    with kept_out(row, there) if row.held else nullcontext():
        if row.held:
            made, busy = row.make(client, timeout=SOON_S), row.busy(there)
        call = (
            (lambda: row.calls.short(client, "a")) if row.calls is not None else enter if api is SYNC else enter_async
        )
        async for outcome in stopped_everywhere(api, call, fails=TimeoutError):
            struck += outcome.how == "stopped"
            try:
                await until(is_over)
            except AssertionError:
                pytest.fail(f"left behind: {outcome}")
    assert struck > (20 if api is SYNC else 1)
