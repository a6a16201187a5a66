"""Fencing that is enforced: a resource remembers the largest fence that it has seen, and refuses smaller ones.

    with hf.lock("report:7") as lease:
        set_if_newer(conn, "report:7", render(), lease.fence)                                # a value in Redis
        update_if_newer(db, "reports", {"body": …}, lease.fence, where={"id": 7})            # a row of a database

A lease alone cannot stop a holder that was paused for longer than its ttl from writing when it wakes up. A fence can,
since the next holder's is larger (Martin Kleppmann, "How to do distributed locking",
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). Whoever writes with a fence that is too small
gets `StaleFence`: what is refused is raised and not answered, because an answer can be overlooked. The same fence passes
again: a holder writes more than once, and what was sent again after a lost reply is no offence.

What a fence cannot do, and plain SQL to copy, stands in ``docs/fencing.md``.
"""

from __future__ import annotations

from handfast.fencing.fences import LARGEST_FENCE, MissingRow, StaleFence
from handfast.fencing.sql import update_if_newer
from handfast.fencing.values import (
    advance_fence,
    delete_if_newer,
    explain,
    guard_key,
    hset_if_newer,
    latest_fence,
    set_if_newer,
)

__all__ = [
    "LARGEST_FENCE",
    "MissingRow",
    "StaleFence",
    "advance_fence",
    "delete_if_newer",
    "explain",
    "guard_key",
    "hset_if_newer",
    "latest_fence",
    "set_if_newer",
    "update_if_newer",
]
