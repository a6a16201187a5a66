"""The lock of coredis, which polls every 100 ms."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Any

from handfast_lab.rivals.base import NoSemaphore, OneKey, hush, waiting
from handfast_lab.rivals.contender import Contender, Wire, text
from handfast_lab.rivals.verbs import LEASE, AioClient, AioLock

__all__ = ["AIO", "CONTENDERS"]


class _CoredisLock:
    def __init__(self, client: Any, name: str, ttl: float) -> None:
        self._client = client
        self._name = name
        self._ttl = ttl
        self._lock: Any = None

    async def acquire(self, timeout: float | None = None) -> bool:
        library = importlib.import_module("coredis.patterns.lock")
        options = {"timeout": self._ttl, "sleep": min(0.1, self._ttl), **waiting(timeout)}
        self._lock = library.Lock(self._client, self._name, **options)
        return bool(await self._lock.acquire())

    async def release(self) -> bool:
        await self._lock.release()
        return True

    async def extend(self, seconds: float) -> None:
        await self._lock.extend(seconds)


class _Coredis(NoSemaphore):
    def __init__(self, client: Any) -> None:
        self._client = client

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> AioLock:  # noqa: ARG002 -- it cannot renew
        return _CoredisLock(self._client, name, ttl)


@contextlib.asynccontextmanager
async def _coredis(url: str, connections: int | None = None) -> AsyncIterator[AioClient]:
    hush()
    async with importlib.import_module("coredis").Redis.from_url(url, max_connections=connections) as client:
        yield _Coredis(client)


def _coredis_wire() -> Wire:
    patterns = importlib.import_module("coredis.patterns.lock")
    return Wire(
        frozenset({"SET"}),
        frozenset({text(patterns.RELEASE_SCRIPT.sha)}),
        frozenset({text(patterns.EXTEND_SCRIPT.sha)}),
    )


_KEY = OneKey()


AIO = Contender("coredis (asyncio)", "coredis", _coredis_wire, _KEY.left, _KEY.remaining, aio=_coredis, extends="by")

CONTENDERS = (AIO,)
