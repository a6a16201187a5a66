"""The first published table: clients that take and release one lock."""

from __future__ import annotations

from typing import ClassVar

from handfast_lab.bench.classic.client import FIRST, LUA, OURS, Conn, Contenders, MeasuredScene, Table, Waiting
from handfast_lab.bench.contenders import LOCKS, Contended

__all__ = ["Locks"]


class Locks(Table):
    """One lock: ``acquire_lock_with_timeout`` and ``release_lock``, and ``hf.lock``."""

    name = "locks"
    title = "One lock"
    success = "acquires"
    effort = "tries"
    about = (
        "Each client takes the lock, waiting as long as it takes, and releases it at once. A try is each time that it "
        "asks the server for the lock. The listings poll every millisecond; Handfast waits in line."
    )
    contenders: ClassVar[Contenders] = dict.fromkeys(
        (FIRST, LUA, OURS),
        lambda scene, _: Waiting(Contended(LOCKS[scene.contender], scene.url, scene.name)),
    )
    limit = 1

    def clear(self, scene: MeasuredScene, conn: Conn) -> None:
        """Delete the lock, which a killed client may have left."""
        conn.delete(f"lock:{scene.name}")
