"""Distributed locks, semaphores and read-write locks through Redis or Valkey.

    from handfast import Handfast

    hf = Handfast("redis://localhost:6379/0")
    with hf.lock("nightly") as lease:
        ...

Handfast is the sync API; AsyncHandfast is the asyncio API, the same with ``await`` and ``async with``. Each has all the
others as methods: `Handfast.lock`, `Handfast.semaphore`, `Handfast.rwlock` and so on give an object with the verbs
``acquire``, ``try_acquire``, ``status`` and ``force_release``, and an acquire gives a `Lease`.

Only what a program uses of the package is imported: a program with the sync API never imports the asyncio API (PEP
562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from handfast._version import __version__ as __version__
from handfast.arguments import (
    AsyncRedisClient,
    AsyncRedisClusterClient,
    CancelEvent,
    Duration,
    KeyPart,
    Kind,
    OnBusy,
    OnLimit,
    OnLost,
    OnRunning,
    RedisClient,
    RedisClusterClient,
)
from handfast.errors import (
    AcquireCancelled,
    AcquireTimeout,
    AlreadyRunning,
    ClientClosed,
    HandfastError,
    KeyReused,
    LeaseLost,
    LimitExceeded,
    NoServer,
    NotCompleted,
    NotHeld,
    NotOwner,
    NotReplicated,
    QueueFull,
    RateLimited,
    ScriptError,
    ServerRefused,
    ServerUnsupported,
    UnknownLayout,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from handfast._api.aio import (
        AcquireContext,
        AsyncAdmission,
        AsyncHandfast,
        AsyncLease,
        AsyncLeaseOfAll,
        AsyncLimiter,
        AsyncLock,
        AsyncLockAll,
        AsyncReadLock,
        AsyncRLease,
        AsyncRLock,
        AsyncRWLease,
        AsyncRWLock,
        AsyncSemaphore,
        AsyncWriteLock,
    )
    from handfast._api.aio.autocomplete import AsyncAutocomplete
    from handfast._api.aio.debounce import AsyncDebounce
    from handfast._api.aio.once import AsyncOnce
    from handfast._api.aio.run import AsyncRun
    from handfast._api.aio.scores import AsyncScores
    from handfast._api.sync import (
        Admission,
        Handfast,
        Lease,
        LeaseOfAll,
        Limiter,
        Lock,
        LockAll,
        ReadLock,
        RLease,
        RLock,
        RWLease,
        RWLock,
        Semaphore,
        WriteLock,
    )
    from handfast._api.sync.autocomplete import Autocomplete
    from handfast._api.sync.debounce import Debounce
    from handfast._api.sync.once import Once
    from handfast._api.sync.run import Run
    from handfast._api.sync.scores import Scores
    from handfast.records import (
        Advance,
        Holder,
        LimiterStatus,
        LockStatus,
        NameStatus,
        OnceStatus,
        OperatorAction,
        Rate,
        RateStatus,
        Scored,
        ServerFinding,
        Waiter,
    )
    from handfast.script import HeaderError, Reply, Script

__all__ = [
    "AcquireCancelled",
    "AcquireContext",
    "AcquireTimeout",
    "Admission",
    "Advance",
    "AlreadyRunning",
    "AsyncAdmission",
    "AsyncAutocomplete",
    "AsyncDebounce",
    "AsyncHandfast",
    "AsyncLease",
    "AsyncLeaseOfAll",
    "AsyncLimiter",
    "AsyncLock",
    "AsyncLockAll",
    "AsyncOnce",
    "AsyncRLease",
    "AsyncRLock",
    "AsyncRWLease",
    "AsyncRWLock",
    "AsyncReadLock",
    "AsyncRedisClient",
    "AsyncRedisClusterClient",
    "AsyncRun",
    "AsyncScores",
    "AsyncSemaphore",
    "AsyncWriteLock",
    "Autocomplete",
    "CancelEvent",
    "ClientClosed",
    "Debounce",
    "Duration",
    "Handfast",
    "HandfastError",
    "HeaderError",
    "Holder",
    "KeyPart",
    "KeyReused",
    "Kind",
    "Lease",
    "LeaseLost",
    "LeaseOfAll",
    "LimitExceeded",
    "Limiter",
    "LimiterStatus",
    "Lock",
    "LockAll",
    "LockStatus",
    "NameStatus",
    "NoServer",
    "NotCompleted",
    "NotHeld",
    "NotOwner",
    "NotReplicated",
    "OnBusy",
    "OnLimit",
    "OnLost",
    "OnRunning",
    "Once",
    "OnceStatus",
    "OperatorAction",
    "QueueFull",
    "RLease",
    "RLock",
    "RWLease",
    "RWLock",
    "Rate",
    "RateLimited",
    "RateStatus",
    "ReadLock",
    "RedisClient",
    "RedisClusterClient",
    "Reply",
    "Run",
    "Scored",
    "Scores",
    "Script",
    "ScriptError",
    "Semaphore",
    "ServerFinding",
    "ServerRefused",
    "ServerUnsupported",
    "UnknownLayout",
    "Waiter",
    "WouldDeadlock",
    "WriteLock",
]

_MODULES = {
    "AcquireContext": "handfast._api.aio",
    "AsyncAutocomplete": "handfast._api.aio.autocomplete",
    "AsyncDebounce": "handfast._api.aio.debounce",
    "AsyncOnce": "handfast._api.aio.once",
    "AsyncRun": "handfast._api.aio.run",
    "AsyncScores": "handfast._api.aio.scores",
    "Autocomplete": "handfast._api.sync.autocomplete",
    "Debounce": "handfast._api.sync.debounce",
    "Once": "handfast._api.sync.once",
    "Run": "handfast._api.sync.run",
    "Scores": "handfast._api.sync.scores",
    **dict.fromkeys(
        (
            "Advance",
            "Holder",
            "LimiterStatus",
            "LockStatus",
            "NameStatus",
            "OnceStatus",
            "OperatorAction",
            "Rate",
            "RateStatus",
            "Scored",
            "ServerFinding",
            "Waiter",
        ),
        "handfast.records",
    ),
    **dict.fromkeys(("HeaderError", "Reply", "Script"), "handfast.script"),
}
"""Where the names are that belong to no API, or that few programs use. All others are in ``_api.aio`` if they begin
with ``Async``, else in ``_api.sync``."""


if not TYPE_CHECKING:  # type checkers would take it for a promise that any name exists

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = "handfast._api.aio" if name.startswith("Async") else "handfast._api.sync"
        value = globals()[name] = getattr(import_module(_MODULES.get(name, api)), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "annotations", "import_module"})
