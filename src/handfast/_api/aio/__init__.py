"""The asyncio API, from which tools/unasync.py makes the sync API."""  # asyncio only
# sync only: """The sync API."""

from __future__ import annotations

from handfast._api.aio.client import AsyncHandfast
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.lock import AsyncLock
from handfast._api.aio.lock_all import AsyncLeaseOfAll, AsyncLockAll
from handfast._api.aio.rlock import AsyncRLease, AsyncRLock
from handfast._api.aio.rwlock import AsyncReadLock, AsyncRWLease, AsyncRWLock, AsyncWriteLock
from handfast._api.aio.scope import AcquireContext  # asyncio only
from handfast._api.aio.semaphore import AsyncSemaphore
from handfast._naming import name_publicly

__all__ = [
    "AcquireContext",  # asyncio only
    "AsyncHandfast",
    "AsyncLease",
    "AsyncLeaseOfAll",
    "AsyncLock",
    "AsyncLockAll",
    "AsyncRLease",
    "AsyncRLock",
    "AsyncRWLease",
    "AsyncRWLock",
    "AsyncReadLock",
    "AsyncSemaphore",
    "AsyncWriteLock",
]

name_publicly(globals(), "handfast")
