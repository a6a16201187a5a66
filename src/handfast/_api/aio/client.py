"""The client: where every object comes from."""

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
from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.autocomplete_calls import AutocompleteCalls
from handfast._engine.calls import MAX_PERMITS, MultiRequest, PermitRequest
from handfast._engine.defaults import DEFAULT_MAX_WAITERS, DEFAULT_TTL_S
from handfast._engine.keys import KeySet
from handfast._engine.score_calls import ScoreCalls
from handfast._engine.validate import check_int, check_on_lost, encode_name, milliseconds
from handfast.records import Duration, OnLost

__all__ = ["AsyncHandfast"]


class AsyncHandfast:
    """Coordination through one Redis or Valkey server. Tasks may share it; a forked child starts afresh with it.

    ``server`` is a URL, an existing ``redis.asyncio.Redis`` (its settings are used, its connections are not), or None
    for ``$HANDFAST_URL``, else ``$REDIS_URL``. ``namespace`` begins every key. ``label`` is how `status` shows this
    client's leases, by default host and process id. Connects when first used.

    All tasks of an event loop share one connection, however many of them wait. A client may be made before any loop runs.
    """

    def __init__(self, server: Any = None, *, namespace: str = "hf", label: str | None = None) -> None:
        encode_name(namespace, "namespace")
        if label is not None:
            encode_name(label, "label")
        self._namespace = namespace
        self._driver = AsyncDriver(AsyncConnector.of(server), namespace, label)
        self._reentrant: PerCaller[ReentrantHold] = PerCaller()
        self._in_blocks: PerCaller[WeakSet[AsyncRWLease]] = PerCaller()

    @classmethod
    def embedded(cls, **options: Any) -> Self:
        """A client of a real server that is started for you and shared with your other processes.

        Needs the extra ``embedded``, or a ``valkey-server`` or ``redis-server`` on the PATH. The server keeps nothing
        on disk and ends soon after its last client. ``options`` are those of the class.
        """
        from handfast.embedded import shared_url

        return cls(AsyncConnector.of(shared_url(), revive=shared_url), **options)

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
    ) -> AsyncLock:
        """The lock of that name.

        ``ttl`` is how many seconds the server keeps a lease that is not renewed; with ``renew`` it is renewed at a third
        of that for as long as it is held and this process lives. No I/O. Raises ValueError and TypeError for what no
        lock can have.

        ``on_lost`` says what a loss does to a block: "raise" cancels it and raises LeaseLost, "warn" warns at its end.
        ``max_waiters`` is how many may stand in line before QueueFull.
        """
        permits = self._permits("lock", name, ttl, renew=renew, max_waiters=max_waiters)
        return AsyncLock(self._driver, permits, check_on_lost(on_lost))

    def rlock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
    ) -> AsyncRLock:
        """The lock of that name, for a task that may come by more than once. The options are those of `lock`."""
        permits = self._permits("lock", name, ttl, renew=renew, max_waiters=max_waiters)
        return AsyncRLock(self._driver, permits, check_on_lost(on_lost), self._reentrant)

    def lock_all(
        self,
        names: Iterable[str],
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
    ) -> AsyncLockAll:
        """The locks of all these names at once: all or none. The options are those of `lock`.

        A name that is given twice counts once. Raises ValueError for no name, and for more than 100.
        """
        if isinstance(names, str):
            raise TypeError(f"names must be several names, not {names!r}")
        places = [KeySet(self._namespace, "lock", name) for name in dict.fromkeys(names)]
        check_int(len(places), "the number of names", 100)
        lease_ms, waiters = milliseconds(ttl, "ttl"), check_int(max_waiters, "max_waiters", MAX_PERMITS)
        bundle = MultiRequest(places, ttl_ms=lease_ms, renew=renew, max_waiters=waiters)
        return AsyncLockAll(self._driver, bundle, check_on_lost(on_lost))

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
    ) -> AsyncSemaphore:
        """The semaphore of that name, with so many permits: up to a billion. The other options are those of `lock`."""
        limit = check_int(limit, "limit", MAX_PERMITS)
        permits = self._permits("semaphore", name, ttl, renew=renew, max_waiters=max_waiters, limit=limit)
        return AsyncSemaphore(self._driver, permits, check_on_lost(on_lost))

    def rwlock(
        self,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
    ) -> AsyncRWLock:
        """The read-write lock of that name. The options are those of `lock`; what it is not is the lock of that name."""
        read = self._permits("rwlock", name, ttl, renew=renew, max_waiters=max_waiters, limit=MAX_PERMITS)
        return AsyncRWLock(self._driver, read, read.with_weight(MAX_PERMITS), check_on_lost(on_lost), self._in_blocks)

    def autocomplete(self, name: str, *, fold_case: bool = False, ranked: bool = False) -> AsyncAutocomplete:
        """The index of that name, to complete what somebody types.

        ``fold_case`` finds names whatever their capital and small letters, and gives them as they were added; ``ranked``
        gives those with the highest score first. Clients that disagree on the two see different indexes. No I/O.
        """
        place = KeySet(self._namespace, "autocomplete", name)
        return AsyncAutocomplete(self._driver, AutocompleteCalls(place, fold_case=fold_case, ranked=ranked))

    def scores(self, name: str) -> AsyncScores:
        """The scores of that name: a sorted set whose members only move forward. No I/O."""
        return AsyncScores(self._driver, ScoreCalls(KeySet(self._namespace, "scores", name)))

    async def close(self) -> None:
        """Close all connections. Leases that are still held are not released: they run out after their ttl."""
        await self._driver.close()

    def _permits(
        self, kind: str, name: str, ttl: Duration, *, renew: bool, max_waiters: int, limit: int = 1
    ) -> PermitRequest:
        return PermitRequest(
            KeySet(self._namespace, kind, name),
            ttl_ms=milliseconds(ttl, "ttl"),
            renew=renew,
            limit=limit,
            max_waiters=check_int(max_waiters, "max_waiters", MAX_PERMITS),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
