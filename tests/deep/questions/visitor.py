"""A process with a caller of its own in a row of the table, on the orders of a test."""

from __future__ import annotations

import asyncio
import os
import threading

from tests._support.actor import Actors
from tests._support.apis import ASYNCIO, SYNC
from tests._support.kinds import ROWS, Visit

__all__ = ["TTL_S", "Visitors"]

TTL_S = 1.0
"""The length of a lease that a test waits for, in seconds."""

APIS = {"sync": SYNC, "asyncio": ASYNCIO}


def visitor(parent, url, row_name, api_name):
    """Be in a row until the order to leave."""
    row, api = ROWS[row_name], APIS[api_name]
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def begin():
        client = api.handfast(url)
        return client, Visit(row, api, row.make_with(client, ttl=TTL_S))

    client, visit = asyncio.run_coroutine_threadsafe(begin(), loop).result()

    def leave():
        visit.may_leave = True

    def child_has_nothing():
        """Fork. Return whether the child finds its lease lost, and ends."""
        if pid := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        lease = visit.leases[-1]
        os._exit(0 if lease is None or lease.lost else 1)

    parent.report("done", "ready")
    parent.serve(
        {
            "begun": lambda: visit.begun,
            "inside": lambda: visit.inside,
            "lost": lambda: visit.leases[-1] is None or visit.leases[-1].lost,
            "ended": lambda: visit.ended,
            "error": lambda: visit.error and type(visit.error).__name__,
            "leave": leave,
            "fork": child_has_nothing,
        },
        answer=True,
    )
    del client


class Visitors(Actors):
    """Starts visitors."""

    def __init__(self, url):
        super().__init__(visitor, url)
