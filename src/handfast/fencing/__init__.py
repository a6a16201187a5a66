"""Fencing enforced by the resource: it remembers the largest fence it has seen and refuses smaller ones.

    with hf.lock("report:7") as lease:
        set_if_newer(conn, "report:7", body, lease.fence)
        update_if_newer(db, "reports", {"body": body}, lease.fence, where={"id": 7})

A lease alone cannot stop a holder that was paused for longer than its ttl from writing when it resumes. A fence can,
since the fence of the next holder is larger (Martin Kleppmann, "How to do distributed locking",
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). A write with a smaller fence raises
`StaleFence`; it is an exception because a return value can be overlooked. A write with the same fence passes: a holder
writes more than once, and a client may send a command again after a lost reply.

The limits of fences, and SQL statements to copy, are in ``docs/how-to/fence-a-write.md``.
"""

from __future__ import annotations

from handfast._naming import name_publicly
from handfast.fencing.fences import LARGEST_FENCE, MissingRow, StaleFence
from handfast.fencing.sql import update_if_newer
from handfast.fencing.values import (
    AsyncClient,
    ForEveryClient,
    SyncClient,
    Value,
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
    "AsyncClient",
    "ForEveryClient",
    "MissingRow",
    "StaleFence",
    "SyncClient",
    "Value",
    "advance_fence",
    "delete_if_newer",
    "explain",
    "guard_key",
    "hset_if_newer",
    "latest_fence",
    "set_if_newer",
    "update_if_newer",
]

name_publicly(globals())
