"""Client processes that can be killed or frozen at any moment.

Each has one client of a contender and carries out orders. They are forked from a process that has imported everything
and opened no connection, so that many can be started per second.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

from handfast import AsyncHandfast, Handfast
from handfast_lab.children import ChildProcess, Parent, ProcessGroup
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import LEASE, AioClient, Client, Lock

__all__ = ["LockUser", "LockUsers", "without_renewal"]

PRELOADED = __name__, "handfast_lab.rivals", "handfast_lab.chaos.writers"

START_TIMEOUT = 20.0
"""Seconds within which a process must be connected."""


class LockUser:
    """The program of a client process: each of its `orders` acquires or releases a lock and reports it.

    ``acquiring`` is reported before an acquire, then ``acquired`` or ``timed out``. After a release ``released`` is
    reported, with whether the lease was still held.
    """

    def __init__(self, parent: Parent, contender: Contender, url: str) -> None:
        self.contender = contender
        self.url = url
        self.report = parent.report
        self._locks: dict[str, Lock] = {}
        self.orders: dict[str, Callable[..., None]] = {
            "acquire": self.acquire,
            "release": self.release,
            "acquire and release": self.acquire_and_release,
        }

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Open the client that the orders use."""
        self._client: Client = stack.enter_context(self.contender.client(self.url))

    def acquire(self, name: str, ttl: float, *, renew: bool = False) -> None:
        lock = self._locks[name] = self._client.lock(name, ttl, renew=renew)
        self.report("acquiring")
        self.report("acquired" if lock.acquire() else "timed out")

    def release(self, name: str) -> None:
        self.report("released", self._locks.pop(name).release())

    def acquire_and_release(self, name: str, ttl: float) -> None:
        self.acquire(name, ttl)
        self.release(name)


class LockUsers(ProcessGroup):
    """The client processes of a trial."""

    def __init__(self, url: str, kind: type[LockUser] = LockUser) -> None:
        super().__init__(preload=PRELOADED)
        self.url = url
        self._kind = kind

    def new(self, contender: Contender, count: int = 1) -> list[ChildProcess]:
        """Start `count` processes and wait until all are connected. Raises ProcessFailed."""
        users = [self.start(_serve, self._kind, contender, self.url) for _ in range(count)]
        for user in users:
            user.expect("ready", START_TIMEOUT)
        return users

    def hold(self, user: ChildProcess, name: str, ttl: float, *, within: float, renew: bool = False) -> None:
        """Let a process acquire a lock. Raises ProcessFailed if it did not in time."""
        user.order("acquire", name, ttl, renew=renew)
        user.expect("acquiring", within)
        user.expect("acquired", within)


def _serve(parent: Parent, kind: type[LockUser], contender: Contender, url: str) -> None:
    logging.disable(logging.CRITICAL)  # leases are lost here by design
    with contextlib.ExitStack() as stack:
        user = kind(parent, contender, url)
        user.begin(stack)
        parent.report("ready")
        parent.serve(user.orders)


# --- a holder of Handfast's that does not renew


class _Unreleased:
    """A lock of Handfast that is acquired and never released. With the asyncio API, `acquire` returns an awaitable."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float | None = None) -> Any:
        return self._lock.acquire(timeout=timeout)


class _WithoutRenewal:
    """A Handfast client of either API whose leases are renewed only on request."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:
        return _Unreleased(self._client.lock(name, ttl=ttl, renew=renew))

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Any:
        raise NotImplementedError(name, limit, ttl)


@contextlib.contextmanager
def _sync_without_renewal(url: str) -> Iterator[Client]:
    with Handfast(url) as client:
        yield _WithoutRenewal(client)


@contextlib.asynccontextmanager
async def _aio_without_renewal(url: str) -> AsyncIterator[AioClient]:
    async with AsyncHandfast(url) as client:
        yield _WithoutRenewal(client)


def without_renewal(contender: Contender) -> Contender:
    """Return our contender with a client whose locks are not renewed and never released."""
    if contender.sync is not None:
        return replace(contender, sync=_sync_without_renewal)
    return replace(contender, aio=_aio_without_renewal)
