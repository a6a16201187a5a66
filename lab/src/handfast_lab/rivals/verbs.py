"""What every library is wrapped as: a client that gives locks, and a lock with its verbs, for both APIs."""

from __future__ import annotations

from typing import Protocol

__all__ = ["LEASE", "AioClient", "AioLock", "Client", "Lock"]

LEASE = 600.0
"""Seconds: longer than any trial, so that a lease that is left behind is still there when the trial looks for it."""


class Lock(Protocol):
    """One caller's access to one lock, or to one permit of a semaphore. It holds at most one lease at a time."""

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait ``timeout`` seconds: without limit if None, not at all if 0. Return whether it is held."""

    def release(self) -> bool:
        """Release it. Return False if the library says that there was nothing to release."""

    def extend(self, seconds: float) -> None:
        """Extend the lease: see `Contender.extends`."""


class AioLock(Protocol):
    """The same, to be awaited."""

    async def acquire(self, timeout: float | None = None) -> bool:
        """See `Lock`."""

    async def release(self) -> bool:
        """See `Lock`."""

    async def extend(self, seconds: float) -> None:
        """See `Lock`."""


class Client(Protocol):
    """One client of a contender."""

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Lock:
        """Return the lock of that name. ``renew`` asks for renewal where it is optional."""

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Lock:
        """Return access to one permit of the semaphore of that name."""


class AioClient(Protocol):
    """The same, of an asyncio contender."""

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> AioLock:
        """See `Client`."""

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> AioLock:
        """See `Client`."""
