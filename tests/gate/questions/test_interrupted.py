"""Ctrl-C or a cancellation at a point of entering or leaving: nothing is left that is held, and the next caller gets in."""

from __future__ import annotations

import linecache
import re
import time

import pytest

import handfast._api.sync as sync_api
import handfast._drivers.sync as sync_drivers
from handfast.testing import cancel_everywhere, interrupt_everywhere
from tests._support.apis import SYNC
from tests._support.helpers import THOROUGH
from tests._support.kinds import POLL_S, until

WITHIN = [sync_api, sync_drivers]
"""The code that is interrupted."""

EVERY = 1 if THOROUGH else 7
"""Distance between two points of an interrupt. The pauses of a run vary, so rows are not interrupted at the same ones."""

UNGUARDED = re.compile(r"\s*def __(enter|exit)__\(")
"""The first instructions of an ``__enter__`` or ``__exit__``, which Python can't guard. The lease lasts for its ttl then."""


def applies(row, api):
    if row.shape != "block":
        return "it has no block"
    return "nothing is held" if row.of == "limiter" else None


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_interrupted(api, client, there, raw, row):
    left, struck = [], 0

    def call():
        with row.block(row.make(client)) as entered:
            while hasattr(entered, "changes") and not entered.items():
                time.sleep(POLL_S)  # the leases of a partition come in the block

    async def call_async():
        async with row.block(row.make(client)):
            pass

    async def look(outcome):
        """Note what is left after a run."""
        nonlocal struck
        struck += outcome.how == "stopped"
        file, line, _ = re.split(r":| in ", outcome.place) if outcome.place else ("", "0", "")
        if UNGUARDED.match(linecache.getline(file, int(line))):
            raw.flushall()
            return
        try:
            await until(lambda: row.is_free(there))
        except AssertionError:
            left.append(outcome)

    if api is SYNC:
        call()  # what is loaded once is no point
        for outcome in interrupt_everywhere(call, within=WITHIN, every=EVERY):
            await look(outcome)
            if left:
                break
    else:
        async for outcome in cancel_everywhere(call_async):
            await look(outcome)
            if left:
                break
    assert not left
    assert struck > 1
