"""Clients that take and release a place of one semaphore."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import ClassVar

import redis

from holdfast import classic
from holdfast.bench.classic.actor import FIRST, LUA, Actor, Conn, Contenders, Scene, Table
from holdfast.bench.contenders import LEASE
from holdfast.bench.counting import WatchCounted
from holdfast.classic import watch

__all__ = ["FAIR", "LIMIT", "Semaphores"]

FAIR = "classic-fair"
"""The first form with its counter and its lock."""

LIMIT = 3

PAUSE = 0.001
"""Seconds that a client waits which got no place: as long as the listings' locks do."""

Acquire = Callable[[redis.Redis, str, int, float], str | None]
Release = Callable[[redis.Redis, str, str], bool]


class SemaphoreActor(Actor):
    """A client that asks for a place; one that gets none asks again a little later."""

    def __init__(self, acquire: Acquire, release: Release, scene: Scene, _number: int) -> None:
        self._conn: Conn = WatchCounted.from_url(scene.url)
        super().__init__(self._conn)
        self._acquire, self._release, self._name = acquire, release, scene.name

    def act(self) -> bool:
        """Ask for a place and give it up."""
        self._tries += 1
        identifier = self._acquire(self._conn, self._name, LIMIT, LEASE)
        if not identifier:
            time.sleep(PAUSE)
            return False
        self.acquired.append(monotonic())
        self.released.append(monotonic())
        self._release(self._conn, self._name, identifier)
        return True


class Semaphores(Table):
    """``acquire_semaphore`` in its three forms. Holdfast has no semaphore yet."""

    name = "semaphores"
    title = f"One semaphore with {LIMIT} places"
    success = "acquires"
    effort = "tries"
    about = (
        f"Each client asks for one of {LIMIT} places and gives it up at once; if there is none it asks again after 1 ms. "
        "A try is each time that it asks. The fair form ranks by a counter and closes its race with a lock, for "
        "which it waits 10 ms at most. The first form's places may be stolen, here by two clients whose commands arrive in another "
        "order than their clocks were read; that is counted and told."
    )
    contenders: ClassVar[Contenders] = {
        FIRST: partial(SemaphoreActor, watch.acquire_semaphore, watch.release_semaphore),
        FAIR: partial(SemaphoreActor, watch.acquire_semaphore_with_lock, watch.release_fair_semaphore),
        LUA: partial(SemaphoreActor, classic.acquire_semaphore, classic.release_semaphore),
    }
    limit = LIMIT
    lenient = frozenset({FIRST, FAIR})

    def clear(self, scene: Scene, conn: Conn) -> None:
        """Forget the holders, the owners and their counter."""
        conn.delete(*(f"{scene.name}{part}" for part in ("", ":owner", ":counter")))
