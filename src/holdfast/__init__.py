"""Coordinate processes through Redis or Valkey: locks and their relatives, handed over, with leases and fences.

from holdfast import Holdfast

hf = Holdfast("redis://localhost:6379/0")
with hf.lock("nightly") as lease:
    ...

AsyncHoldfast is the same with ``await`` and ``async with``.
"""

from __future__ import annotations

from holdfast.facade.aio.autocomplete import AsyncAutocomplete
from holdfast.facade.aio.client import AsyncHoldfast
from holdfast.facade.aio.lease import AsyncLease
from holdfast.facade.aio.lock import AsyncLock
from holdfast.facade.aio.lock_all import AsyncLeaseOfAll, AsyncLockAll
from holdfast.facade.aio.rlock import AsyncRLease, AsyncRLock
from holdfast.facade.aio.rwlock import AsyncReadLock, AsyncRWLease, AsyncRWLock, AsyncWriteLock
from holdfast.facade.aio.scores import AsyncScores
from holdfast.facade.aio.semaphore import AsyncSemaphore
from holdfast.facade.script import Script
from holdfast.facade.sync.autocomplete import Autocomplete
from holdfast.facade.sync.client import Holdfast
from holdfast.facade.sync.lease import Lease
from holdfast.facade.sync.lock import Lock
from holdfast.facade.sync.lock_all import LeaseOfAll, LockAll
from holdfast.facade.sync.rlock import RLease, RLock
from holdfast.facade.sync.rwlock import ReadLock, RWLease, RWLock, WriteLock
from holdfast.facade.sync.scores import Scores
from holdfast.facade.sync.semaphore import Semaphore
from holdfast.wire.replies import Reply
from holdfast.words.durations import Duration
from holdfast.words.errors import (
    AcquireTimeout,
    HoldfastError,
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
from holdfast.words.records import Advance, Holder, LockStatus, Scored, Waiter

__all__ = [
    "AcquireTimeout",
    "Advance",
    "AsyncAutocomplete",
    "AsyncHoldfast",
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
    "Holder",
    "Holdfast",
    "HoldfastError",
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
