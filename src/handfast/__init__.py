"""Distributed locks, semaphores and read-write locks through Redis or Valkey.

    from handfast import Handfast

    hf = Handfast("redis://localhost:6379/0")
    with hf.lock("nightly") as lease:
        ...

Handfast is the sync API; AsyncHandfast is the asyncio API, the same with ``await`` and ``async with``. Each has all the
others as methods: `Handfast.lock`, `Handfast.semaphore`, `Handfast.rwlock` and so on give an object with the verbs
``acquire``, ``try_acquire``, ``status`` and ``force_release``, and an acquire gives a `Lease`.

Only what a program uses of the package is imported: a program with the sync API never imports the asyncio API (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from handfast._version import __version__ as __version__
from handfast.arguments import Duration, OnBusy, OnLost
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

if TYPE_CHECKING:
    from handfast._api.aio import (
        AcquireContext,
        AsyncAutocomplete,
        AsyncHandfast,
        AsyncLease,
        AsyncLeaseOfAll,
        AsyncLock,
        AsyncLockAll,
        AsyncReadLock,
        AsyncRLease,
        AsyncRLock,
        AsyncRWLease,
        AsyncRWLock,
        AsyncScores,
        AsyncSemaphore,
        AsyncWriteLock,
    )
    from handfast._api.sync import (
        Autocomplete,
        Handfast,
        Lease,
        LeaseOfAll,
        Lock,
        LockAll,
        ReadLock,
        RLease,
        RLock,
        RWLease,
        RWLock,
        Scores,
        Semaphore,
        WriteLock,
    )
    from handfast.records import Advance, Holder, LockStatus, OperatorAction, Scored, Waiter
    from handfast.script import HeaderError, Reply, Script

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
    "OnBusy",
    "OnLost",
    "OperatorAction",
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

_MODULES = {
    "AcquireContext": "handfast._api.aio",
    **dict.fromkeys(("Advance", "Holder", "LockStatus", "OperatorAction", "Scored", "Waiter"), "handfast.records"),
    **dict.fromkeys(("HeaderError", "Reply", "Script"), "handfast.script"),
}
"""Where the names are that belong to no API. All others are in ``_api.aio`` if they begin with ``Async``, else in ``_api.sync``."""


if not TYPE_CHECKING:  # type checkers would take it for a promise that any name exists

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = "handfast._api.aio" if name.startswith("Async") else "handfast._api.sync"
        value = globals()[name] = getattr(import_module(_MODULES.get(name, api)), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
