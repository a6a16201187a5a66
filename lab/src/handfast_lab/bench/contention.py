"""Processes that contend for one lock, or for one permit of a semaphore."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from time import monotonic
from typing import Any

from handfast_lab.bench.contenders import LEASE, LOCKS, SEMAPHORES
from handfast_lab.bench.workload import Conn, MeasuredClient, ProcessWorkload, Scene

__all__ = ["Contention"]


class Contention(ProcessWorkload):
    """Clients acquire and release, holding for ``hold`` seconds. ``permits`` is the semaphore's limit; None: a lock."""

    def __init__(self, contenders: Collection[str], hold: float = 0.0, permits: int | None = None) -> None:
        self.contenders, self.limit = contenders, permits or 1
        self._hold, self._permits = hold, permits

    def client(self, scene: Scene, number: int) -> MeasuredClient:  # noqa: ARG002 -- all clients are alike
        return _Holding(scene, self._hold, self._permits)

    def clear(self, scene: Scene, conn: Conn) -> None:
        """Delete the keys that listings and rivals leave, some of them without a TTL."""
        name = scene.name
        listings = [f"{name}{part}" for part in ("", ":owner", ":counter")]
        conn.delete(*listings, f"lock:{name}", *(f"semaphore:{name}:{part}" for part in ("owners", "fencing", "queue")))


class _Holding(MeasuredClient):
    """A client that waits until it is granted, holds, and releases."""

    def __init__(self, scene: Scene, hold: float, permits: int | None) -> None:
        contender = (LOCKS if permits is None else SEMAPHORES)[scene.contender]
        if contender.sync is None:
            raise TypeError(f"{contender.name} has no sync API")
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(contender.sync(scene.url))
            lock = client.lock(scene.name, LEASE) if permits is None else client.semaphore(scene.name, permits, LEASE)
            super().__init__(stack.pop_all())
        self._lock: Any = lock
        self._hold = hold

    @property
    def tries(self) -> int:
        """Number of requests so far; a polling contender sends several for one acquire."""
        return int(self._lock.tries)

    @property
    def retries(self) -> int:
        return int(getattr(self._lock, "retries", 0))

    def act(self) -> None:
        """Acquire and release once."""
        self._lock.acquire()
        self.succeeded.append(monotonic())
        if self._hold:
            time.sleep(self._hold)
        self.released.append(monotonic())
        self._lock.release()
