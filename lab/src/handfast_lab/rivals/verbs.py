"""The protocols that every adapter implements: a client that creates locks, and a lock, for both APIs."""

from __future__ import annotations

from typing import Protocol

__all__ = ["LEASE", "AioClient", "AioLock", "Client", "Lock"]

LEASE = 600.0
"""Lease in seconds: longer than any trial, so that an abandoned lease still exists when the trial looks for it."""


class Lock(Protocol):
    """One caller's access to one lock or one permit of a semaphore. It holds at most one lease at a time."""

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds (None: indefinitely, 0: not at all). Return whether the lock is held."""

    def release(self) -> bool:
        """Release the lease. Return False if the library reports that it was not held."""

    def extend(self, seconds: float) -> None:
        """Extend the lease; `Contender.extends` gives the meaning of ``seconds``."""


class AioLock(Protocol):
    """The asyncio version of `Lock`."""

    async def acquire(self, timeout: float | None = None) -> bool:
        """See `Lock`."""

    async def release(self) -> bool:
        """See `Lock`."""

    async def extend(self, seconds: float) -> None:
        """See `Lock`."""


class Client(Protocol):
    """One client of a contender."""

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Lock:
        """Return the lock with this name. ``renew`` requests renewal where it is optional."""

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Lock:
        """Return access to one permit of the semaphore with this name."""


class AioClient(Protocol):
    """The asyncio version of `Client`."""

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> AioLock:
        """See `Client`."""

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> AioLock:
        """See `Client`."""
