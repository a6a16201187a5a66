"""Code shared by the adapters: most rivals build on redis-py, and many of their locks are a single key."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.connection import parse_url

from handfast_lab.rivals.contender import keys
from handfast_lab.rivals.verbs import LEASE, AioClient, Client

__all__ = ["Asked", "NoSemaphore", "OneKey", "OverAioRedis", "OverClient", "OverRedis", "hush", "place", "waiting"]


def hush() -> None:
    """Silence the loggers of rivals, which log every failed attempt."""
    for name in ("redis_lock", "redis_semaphore", "redis_fifo_lock", "pottery", "coredis"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def waiting(timeout: float | None) -> dict[str, Any]:
    """Return redis-py's options for this timeout."""
    return {"blocking": False} if timeout == 0 else {"blocking_timeout": timeout}


class Asked:
    """A lock that sends one request for each acquire."""

    tries = 0
    """Number of requests so far."""


class NoSemaphore:
    """A client without semaphores."""

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Any:
        raise NotImplementedError(f"no semaphore {name!r} of {limit} for {ttl:g} s: there are none")


class OverClient(NoSemaphore):
    """A client built on a redis-py client."""

    def __init__(self, connection: Any) -> None:
        self._redis = connection

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:
        raise NotImplementedError(name, ttl, renew)


def place(url: str) -> dict[str, Any]:
    """Return the parts of the URL as options of redis-py's client.

    A client created from options retries a lost command, which is the default; a client created from a URL does not.
    """
    found: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py's
    found.pop("connection_class", None)
    if "path" in found:
        found["unix_socket_path"] = found.pop("path")
    return found


@dataclass(frozen=True)
class OverRedis:
    """Opens a redis-py client, and the rival's client on top of it."""

    kind: Callable[[Any], Client]

    @contextlib.contextmanager
    def __call__(self, url: str) -> Iterator[Client]:
        hush()
        with redis.Redis(**place(url)) as connection:
            yield self.kind(connection)


@dataclass(frozen=True)
class OverAioRedis:
    """The asyncio version of `OverRedis`."""

    kind: Callable[[Any], AioClient]

    @contextlib.asynccontextmanager
    async def __call__(self, url: str, connections: int | None = None) -> AsyncIterator[AioClient]:
        hush()
        connection: Any
        if connections is None:
            connection = redis.asyncio.Redis(**place(url))
        else:  # for benchmarks: without retries, so that a refused connection is an error
            connection = redis.asyncio.Redis.from_url(url, max_connections=connections)
        try:
            yield self.kind(connection)
        finally:
            await connection.aclose()


@dataclass(frozen=True)
class OneKey:
    """Locks that are one key each, named with this prefix, which exists while the lock is held."""

    prefix: str = ""

    def left(self, admin: redis.Redis) -> list[str]:
        return [key for key in keys(admin) if key.startswith(self.prefix)]

    def remaining(self, admin: redis.Redis, name: str) -> float:
        return max(0.0, float(admin.pttl(self.prefix + name)))
