"""Coordinate processes through Redis or Valkey: locks that are handed over, with leases and fences.

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
from holdfast.facade.aio.scores import AsyncScores
from holdfast.facade.script import Script
from holdfast.facade.sync.autocomplete import Autocomplete
from holdfast.facade.sync.client import Holdfast
from holdfast.facade.sync.lease import Lease
from holdfast.facade.sync.lock import Lock
from holdfast.facade.sync.scores import Scores
from holdfast.wire.replies import Reply
from holdfast.words.durations import Duration
from holdfast.words.errors import (
    AcquireTimeout,
    HoldfastError,
    LeaseLost,
    NoServer,
    NotHeld,
    QueueFull,
    ScriptError,
    ServerRefused,
    ServerUnsupported,
)
from holdfast.words.records import Advance, Holder, LockStatus, Scored, Waiter

__all__ = [
    "AcquireTimeout",
    "Advance",
    "AsyncAutocomplete",
    "AsyncHoldfast",
    "AsyncLease",
    "AsyncLock",
    "AsyncScores",
    "Autocomplete",
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
    "Reply",
    "Scored",
    "Scores",
    "Script",
    "ScriptError",
    "ServerRefused",
    "ServerUnsupported",
    "Waiter",
]

__version__ = "0.1.0"
