"""Distributed locks, semaphores and read-write locks through Redis or Valkey.

    from handfast import Handfast

    hf = Handfast("redis://localhost:6379/0")
    with hf.lock("nightly") as lease:
        ...

Handfast is the sync API; AsyncHandfast is the asyncio API, the same with ``await`` and ``async with``. Each has all the
others as methods: `Handfast.lock`, `Handfast.semaphore`, `Handfast.rwlock` and so on give an object with the verbs
``acquire``, ``try_acquire``, ``status`` and ``force_release``, and an acquire gives a `Lease`.
"""

from __future__ import annotations

from handfast._api.aio.autocomplete import AsyncAutocomplete
from handfast._api.aio.client import AsyncHandfast
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.lock import AsyncLock
from handfast._api.aio.lock_all import AsyncLeaseOfAll, AsyncLockAll
from handfast._api.aio.rlock import AsyncRLease, AsyncRLock
from handfast._api.aio.rwlock import AsyncReadLock, AsyncRWLease, AsyncRWLock, AsyncWriteLock
from handfast._api.aio.scores import AsyncScores
from handfast._api.aio.semaphore import AsyncSemaphore
from handfast._api.sync.autocomplete import Autocomplete
from handfast._api.sync.client import Handfast
from handfast._api.sync.lease import Lease
from handfast._api.sync.lock import Lock
from handfast._api.sync.lock_all import LeaseOfAll, LockAll
from handfast._api.sync.rlock import RLease, RLock
from handfast._api.sync.rwlock import ReadLock, RWLease, RWLock, WriteLock
from handfast._api.sync.scores import Scores
from handfast._api.sync.semaphore import Semaphore
from handfast._drivers.aio.scope import AcquireContext
from handfast._engine.header import HeaderError
from handfast._engine.replies import Reply
from handfast._naming import name_publicly
from handfast.errors import (
    AcquireTimeout,
    HandfastError,
    LeaseLost,
    LimitExceeded,
    NoServer,
    NotHeld,
    NotOwner,
    QueueFull,
    ScriptError,
    ServerRefused,
    ServerUnsupported,
    WouldDeadlock,
)
from handfast.records import Advance, Duration, Holder, LockStatus, OnLost, Scored, Waiter
from handfast.script import Script

__all__ = [
    "AcquireContext",
    "AcquireTimeout",
    "Advance",
    "AsyncAutocomplete",
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
    "AsyncScores",
    "AsyncSemaphore",
    "AsyncWriteLock",
    "Autocomplete",
    "Duration",
    "Handfast",
    "HandfastError",
    "HeaderError",
    "Holder",
    "Lease",
    "LeaseLost",
    "LeaseOfAll",
    "LimitExceeded",
    "Lock",
    "LockAll",
    "LockStatus",
    "NoServer",
    "NotHeld",
    "NotOwner",
    "OnLost",
    "QueueFull",
    "RLease",
    "RLock",
    "RWLease",
    "RWLock",
    "ReadLock",
    "Reply",
    "Scored",
    "Scores",
    "Script",
    "ScriptError",
    "Semaphore",
    "ServerRefused",
    "ServerUnsupported",
    "Waiter",
    "WouldDeadlock",
    "WriteLock",
]

__version__ = "0.1.0"

name_publicly(globals())
