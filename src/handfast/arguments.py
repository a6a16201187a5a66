"""The types of arguments of many methods of Handfast."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import date, timedelta
from enum import Enum
from typing import Any, Literal, Protocol
from uuid import UUID

from handfast._naming import name_publicly

__all__ = [
    "AsyncItems",
    "AsyncRedisClient",
    "AsyncRedisClusterClient",
    "CancelEvent",
    "Duration",
    "HeldKind",
    "Items",
    "KeyPart",
    "Kind",
    "OnBusy",
    "OnLimit",
    "OnLost",
    "OnRunning",
    "RedisClient",
    "RedisClusterClient",
]


class RedisClient(Protocol):
    """A client of redis-py or valkey-py for the sync API: the members that no asyncio client has."""

    connection_pool: Any

    def __enter__(self) -> Any: ...


class AsyncRedisClient(Protocol):
    """A client of redis-py or valkey-py for the asyncio API: the members that no sync client has."""

    connection_pool: Any

    def __aenter__(self) -> Awaitable[Any]: ...


class RedisClusterClient(Protocol):
    """A client of redis-py for a cluster, for the sync API: the members that no other client has."""

    nodes_manager: Any

    def __enter__(self) -> Any: ...


class AsyncRedisClusterClient(Protocol):
    """A client of redis-py for a cluster, for the asyncio API: the members that no other client has."""

    nodes_manager: Any

    def __aenter__(self) -> Awaitable[Any]: ...


class CancelEvent(Protocol):
    """The event to end a wait of the sync API: a `threading.Event`, or any other object with this method."""

    def is_set(self) -> bool:
        """Return whether the wait is to end."""


Items = Iterable[str] | Callable[[], Iterable[str]]
"""The items of a partition, each once, or a function that returns them."""

AsyncItems = Iterable[str] | Callable[[], Iterable[str] | Awaitable[Iterable[str]]]
"""The same in the asyncio API, where it may be a coroutine function."""

Duration = float | timedelta
"""A length of time: seconds as a number, or a timedelta. From 0.001 s to 366 days; rounded up to whole milliseconds."""

KeyPart = str | int | UUID | date | Enum
"""A part of a key, as ``keyed()`` and ``by=`` of a limiter, `once` and `debounce` take it: a str of 1 byte to 16 KiB of
UTF-8; an int, bool, UUID, date or datetime, which stand for their text (a date in ISO 8601); or an Enum, which stands for
its value."""

Kind = Literal[
    "lock", "semaphore", "rwlock", "election", "group", "partition", "once", "limiter", "budget", "debounce", "latch"
]
"""What a name is the name of. Names of different kinds have nothing to do with each other; `rlock` and `lock_all` take
locks. A key has its parts in its name, ``invoice|42``."""

HeldKind = Literal["lock", "semaphore", "rwlock", "election", "once"]
"""What an operator can put on hold, by the kind of the name."""

OnBusy = Literal["raise", "skip", "replace", "preempt"]
"""What a decorated function does while others hold its lock: wait, and ``"raise"`` AcquireTimeout if it is not acquired in
time; ``"skip"`` and return None; ``"replace"`` all who wait; or ``"preempt"`` the holder."""

OnLimit = Literal["wait", "raise"]
"""What a limiter does with a call that does not fit now: ``"wait"`` for its turn, or ``"raise"`` RateLimited."""

OnLost = Literal["raise", "warn"]
"""What a lost lease does to its ``with`` block: ``"raise"`` LeaseLost, or ``"warn"`` with a RuntimeWarning at its
end."""

OnRunning = Literal["wait", "raise"]
"""What a call for a key does that another one runs: ``"wait"`` for its result, or ``"raise"`` AlreadyRunning."""

name_publicly(globals(), "handfast")
