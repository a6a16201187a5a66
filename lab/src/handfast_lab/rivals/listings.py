"""The classic listings: locks and semaphores that poll every millisecond, in their first form and as Lua scripts."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from handfast import classic
from handfast.classic import watch
from handfast_lab.rivals.base import OneKey
from handfast_lab.rivals.contender import Contender, Wire
from handfast_lab.rivals.verbs import LEASE, Client, Lock

__all__ = ["FAIR", "FIRST", "LUA", "WatchCounted"]

FOREVER = 3600.0
"""The timeout, in seconds, passed to functions that require one, for an indefinite wait."""

PAUSE = 0.001
"""Seconds between two attempts at a semaphore: the polling period of the listings' own locks."""


class WatchCounted(redis.Redis):
    """A client that counts failed EXECs (a watched key had changed) and requests for a lock."""

    retries = 0
    tries = 0

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Any:  # noqa: FBT002 -- redis-py's signature
        pipe = _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.counter = self
        return pipe

    def setnx(self, *args: Any, **options: Any) -> Any:
        self.tries += 1
        return super().setnx(*args, **options)

    def evalsha(self, *args: Any, **options: Any) -> Any:
        self.tries += 1
        return super().evalsha(*args, **options)


class _Pipeline(redis.client.Pipeline):
    counter: WatchCounted

    def execute(self, raise_on_error: bool = True) -> Any:  # noqa: FBT001, FBT002 -- redis-py's signature
        try:
            return super().execute(raise_on_error)
        except redis.WatchError:
            self.counter.retries += 1
            raise


class _Listed:
    """One lock or permit of a listing: ``ask`` returns an identifier, or None on a timeout."""

    def __init__(self, conn: Any, ask: Callable[[float], str | None], release: Callable[[str], bool]) -> None:
        self._conn = conn
        self._ask = ask
        self._release = release
        self._identifier = ""
        self._releases = 0

    @property
    def tries(self) -> int:
        return int(self._conn.tries) - self._releases

    @property
    def retries(self) -> int:
        return int(self._conn.retries)

    def acquire(self, timeout: float | None = None) -> bool:
        self._identifier = self._ask(FOREVER if timeout is None else timeout) or ""
        return bool(self._identifier)

    def release(self) -> bool:
        asked = self._conn.tries
        try:
            return bool(self._release(self._identifier))
        finally:
            self._releases += self._conn.tries - asked  # a release does not count as an attempt

    def extend(self, seconds: float) -> None:
        raise NotImplementedError(f"not by {seconds:g} s: the listings cannot")


class _ListedPermit(_Listed):
    """A permit of the listings' semaphores, which do not wait: this class polls, and each call counts as an attempt."""

    def __init__(self, conn: Any, ask: Callable[[], str | None], release: Callable[[str], bool]) -> None:
        super().__init__(conn, self._wait, release)
        self._ask_once = ask
        self._tries = 0

    @property
    def tries(self) -> int:
        return self._tries

    def _wait(self, timeout: float) -> str | None:
        until = time.monotonic() + timeout
        while True:
            self._tries += 1
            if identifier := self._ask_once():
                return identifier
            if time.monotonic() >= until:
                return None
            time.sleep(PAUSE)


@dataclass(frozen=True)
class _Listing:
    """One form of the listings."""

    acquire: Callable[..., Any]
    release: Callable[..., Any]
    acquire_permit: Callable[..., Any]
    release_permit: Callable[..., Any]

    @contextlib.contextmanager
    def __call__(self, url: str) -> Iterator[Client]:
        with WatchCounted.from_url(url) as conn:
            yield _Client(self, conn)


@dataclass(frozen=True)
class _Client:
    form: _Listing
    conn: Any

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Lock:  # noqa: ARG002 -- it cannot renew
        form, conn = self.form, self.conn
        return _Listed(
            conn,
            lambda timeout: form.acquire(conn, name, timeout, math.ceil(ttl)),
            partial(form.release, conn, name),
        )

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Lock:
        form, conn = self.form, self.conn
        ask = partial(form.acquire_permit, conn, name, limit, math.ceil(ttl))
        return _ListedPermit(conn, ask, partial(form.release_permit, conn, name))


def _contender(name: str, form: _Listing) -> Contender:
    key = OneKey("lock:")
    return Contender(
        name, "handfast", _wire, key.left, key.remaining, sync=form, has=frozenset({"semaphore"}), shortest_ttl=1.0
    )


def _wire() -> Wire:
    """Return nothing: the listings are measured but not attacked."""
    return Wire(frozenset(), frozenset())


_LOCK = watch.acquire_lock_with_timeout, watch.release_lock

FIRST = _contender("classic-first", _Listing(*_LOCK, watch.acquire_semaphore, watch.release_semaphore))
FAIR = _contender("classic-fair", _Listing(*_LOCK, watch.acquire_semaphore_with_lock, watch.release_fair_semaphore))
LUA = _contender(
    "classic-lua",
    _Listing(
        classic.acquire_lock_with_timeout, classic.release_lock, classic.acquire_semaphore, classic.release_semaphore
    ),
)
