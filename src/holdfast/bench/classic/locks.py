"""The first of the published tables: clients that take and release one lock."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from holdfast.bench.classic.actor import FIRST, LUA, OURS, Actor, Conn, Contenders, Scene, Table
from holdfast.bench.contenders import ClassicFirst, ClassicLua, Contender, Ours

__all__ = ["Locks"]


class LockActor(Actor):
    """A client of ``bench lock``, which waits until it has the lock."""

    def __init__(self, contender: Contender) -> None:
        super().__init__(contender)
        self._contender = contender

    @property
    def tries(self) -> int:
        """How often it asked for the lock: a poller does so again and again."""
        return self._contender.tries

    def act(self) -> bool:
        """Take the lock and release it."""
        self._contender.acquire()
        self.acquired.append(monotonic())
        self.released.append(monotonic())
        self._contender.release()
        return True


class Locks(Table):
    """``acquire_lock_with_timeout`` and ``release_lock``, and ``hf.lock``."""

    name = "locks"
    title = "One lock"
    success = "acquires"
    effort = "tries"
    about = (
        "Each client takes the lock, waiting as long as it takes, and releases it at once. A try is each time that it "
        "asks the server for the lock. The listings poll every millisecond; Holdfast waits in line."
    )
    contenders: ClassVar[Contenders] = {
        FIRST: lambda scene, _: LockActor(ClassicFirst(scene.url, scene.name)),
        LUA: lambda scene, _: LockActor(ClassicLua(scene.url, scene.name)),
        OURS: lambda scene, _: LockActor(Ours(scene.url, scene.name)),
    }
    limit = 1

    def clear(self, scene: Scene, conn: Conn) -> None:
        """All have released; this is for a client that was killed."""
        conn.delete(f"lock:{scene.name}")
