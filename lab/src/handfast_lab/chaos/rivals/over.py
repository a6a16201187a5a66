"""What rivals have in common: most are built on redis-py, and many a lock is a single key."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.connection import parse_url

from handfast_lab.chaos.contender import LEASE, AioClient, Client, keys

__all__ = ["NoSemaphore", "OneKey", "OverAioRedis", "OverClient", "OverRedis", "hush", "waiting"]


def hush() -> None:
    """What rivals have to say of every failed try is not the trial's business."""
    for name in ("redis_lock", "redis_semaphore", "redis_fifo_lock", "pottery", "coredis"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def waiting(timeout: float | None) -> dict[str, Any]:
    """How redis-py is told how long to wait."""
    return {"blocking": False} if timeout == 0 else {"blocking_timeout": timeout}


class NoSemaphore:
    """What has none is not asked for one."""

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Any:
        """See `handfast_lab.chaos.contender.Client`."""
        raise NotImplementedError(f"no semaphore {name!r} of {limit} for {ttl:g} s: there are none")


class OverClient(NoSemaphore):
    """A client of redis-py, for all that are built on it."""

    def __init__(self, connection: Any) -> None:
        self._redis = connection

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:
        """See `handfast_lab.chaos.contender.Client`."""
        raise NotImplementedError(name, ttl, renew)


def _place(url: str) -> dict[str, Any]:
    """Where that is, in the words of redis-py's client. Made like this it sends a lost command again, which is its default;
    made from a URL it does not.
    """
    found: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]  # the client library's
    found.pop("connection_class", None)
    if "path" in found:
        found["unix_socket_path"] = found.pop("path")
    return found


@dataclass(frozen=True)
class OverRedis:
    """Opens a client of redis-py and what is built on it."""

    kind: Callable[[Any], Client]

    @contextlib.contextmanager
    def __call__(self, url: str) -> Iterator[Client]:
        """Open it there, closed at the end."""
        hush()
        with redis.Redis(**_place(url)) as connection:
            yield self.kind(connection)


@dataclass(frozen=True)
class OverAioRedis:
    """The same for asyncio."""

    kind: Callable[[Any], AioClient]

    @contextlib.asynccontextmanager
    async def __call__(self, url: str) -> AsyncIterator[AioClient]:
        """Open it there, closed at the end."""
        hush()
        connection: Any = redis.asyncio.Redis(**_place(url))
        try:
            yield self.kind(connection)
        finally:
            await connection.aclose()


@dataclass(frozen=True)
class OneKey:
    """Locks that are one key each, which is there for as long as the lock is held, and called like this."""

    prefix: str = ""

    def left(self, admin: redis.Redis) -> list[str]:
        """See `handfast_lab.chaos.contender.Contender`."""
        return [key for key in keys(admin) if key.startswith(self.prefix)]

    def remaining(self, admin: redis.Redis, name: str) -> float:
        """See `handfast_lab.chaos.contender.Contender`."""
        return max(0.0, float(admin.pttl(self.prefix + name)))
