"""Coordinate processes through Redis or Valkey: locks and their relatives, handed over, with leases and fences.

from handfast import Handfast

hf = Handfast("redis://localhost:6379/0")
with hf.lock("nightly") as lease:
    ...

AsyncHandfast is the same with ``await`` and ``async with``.
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
from handfast._engine.durations import Duration
from handfast._engine.replies import Reply
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
from handfast.records import Advance, Holder, LockStatus, Scored, Waiter
from handfast.script import Script

__all__ = [
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
