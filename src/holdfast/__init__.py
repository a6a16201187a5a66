"""Coordinate processes through Redis or Valkey: locks that are handed over, with leases and fences.

from holdfast import Holdfast

hf = Holdfast("redis://localhost:6379/0")
with hf.lock("nightly") as lease:
    ...

AsyncHoldfast is the same with ``await`` and ``async with``.
"""

from __future__ import annotations

from holdfast.facade.aio.client import AsyncHoldfast
from holdfast.facade.aio.lease import AsyncLease
from holdfast.facade.aio.lock import AsyncLock
from holdfast.facade.sync.client import Holdfast
from holdfast.facade.sync.lease import Lease
from holdfast.facade.sync.lock import Lock
from holdfast.words.durations import Duration
from holdfast.words.errors import (
    AcquireTimeout,
    HoldfastError,
    LeaseLost,
    NoServer,
    NotHeld,
    QueueFull,
    ServerRefused,
    ServerUnsupported,
)
from holdfast.words.records import Holder, LockStatus, Waiter

__all__ = [
    "AcquireTimeout",
    "AsyncHoldfast",
    "AsyncLease",
    "AsyncLock",
    "Duration",
    "Holder",
    "Holdfast",
    "HoldfastError",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockStatus",
    "NoServer",
    "NotHeld",
    "QueueFull",
    "ServerRefused",
    "ServerUnsupported",
    "Waiter",
]

__version__ = "0.1.0"
