"""Ctrl-C or a cancellation at a point of entering or leaving: nothing is left that is held, and the next caller gets in."""

from __future__ import annotations

import linecache
import re
import time

import pytest

from tests._support.apis import SYNC
from tests._support.helpers import settled
from tests._support.kinds import POLL_S, stopped_everywhere, until

UNGUARDED = re.compile(r"\s*def __(enter|exit)__\(")
"""The first instructions of an ``__enter__`` or ``__exit__``, which Python can't guard. The lease lasts for its ttl then."""


def applies(row, api):
    if row.shape != "block":
        return "it has no block"
    return "nothing is held" if row.of == "limiter" else None


def is_unguarded(outcome):
    """Return whether it was stopped where Python can't guard."""
    file, line, _ = re.split(r":| in ", outcome.place) if outcome.place else ("", "0", "")
    return UNGUARDED.match(linecache.getline(file, int(line)))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_interrupted(api, row, client, *, server, there, raw):
    made = row.make(client)
    clients = [api.handfast(server.url)]

    def enter():
        with row.block(row.make(clients[-1])) as entered:
            while hasattr(entered, "changes") and not entered.items():
                time.sleep(POLL_S)  # the leases of a partition come in the block

    async def enter_async():
        async with row.block(row.make(clients[-1])) as entered:
            await until(lambda: not hasattr(entered, "changes") or entered.items())

    struck = 0
    ways = [
        enter if api is SYNC else enter_async,
        *(getattr(made, verb) for verb in ("acquire", "try_acquire") if hasattr(made, verb)),
    ]
    for way in ways:
        async for outcome in stopped_everywhere(api, way):
            struck += outcome.how == "stopped"
            if outcome.how == "finished" and outcome.result is not None:
                await settled(outcome.result.release())
            if is_unguarded(outcome):
                raw.flushall()
                clients.append(api.handfast(server.url))  # the former client may believe that it is in the block
                continue
            try:
                await until(lambda: row.is_free(there))
            except AssertionError:
                pytest.fail(f"left behind: {outcome}")
            row.forget(there)
    assert struck > (60 if api is SYNC else 2)
    for used in clients:
        await settled(used.close())
