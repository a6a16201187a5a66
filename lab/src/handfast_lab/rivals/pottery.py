"""pottery's Redlock, with one master."""

from __future__ import annotations

import importlib
import json
from functools import cache, partial
from typing import Any

import redis

from handfast_lab.rivals.base import OneKey, OverAioRedis, OverClient, OverRedis
from handfast_lab.rivals.contender import Contender, Wire
from handfast_lab.rivals.verbs import LEASE

__all__ = ["CONTENDERS"]


@cache
def _pottery() -> Any:
    """Return the library. Its import replaces `json.dumps`, which this undoes: the locks do not need it."""
    dumps = json.dumps
    try:
        return importlib.import_module("pottery")
    finally:
        json.dumps = dumps


class _PotteryLock:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float | None = None) -> bool:
        return bool(self._lock.acquire(**_wait_pottery(timeout)))

    def release(self) -> bool:
        self._lock.release()
        return True

    def extend(self, seconds: float) -> None:  # noqa: ARG002 -- it knows how long a lease is
        self._lock.extend()


class _PotteryAioLock:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def acquire(self, timeout: float | None = None) -> bool:
        return bool(await self._lock.acquire(**_wait_pottery(timeout)))

    async def release(self) -> bool:
        await self._lock.release()
        return True

    async def extend(self, seconds: float) -> None:  # noqa: ARG002 -- it knows how long a lease is
        await self._lock.extend()


def _wait_pottery(timeout: float | None) -> dict[str, Any]:
    return {"blocking": False} if timeout == 0 else {} if timeout is None else {"timeout": timeout}


class _Pottery(OverClient):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it cannot renew
        return _PotteryLock(_pottery().Redlock(key=name, masters={self._redis}, auto_release_time=ttl))


class _PotteryAio(OverClient):
    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:  # noqa: ARG002 -- it cannot renew
        return _PotteryAioLock(_pottery().AIORedlock(key=name, masters={self._redis}, auto_release_time=ttl))


def _pottery_wire() -> Wire:
    """Return what it sends; its scripts are created with its first lock."""
    lock = _pottery().Redlock
    with redis.Redis() as unused:
        lock(key="a", masters={unused})
    return Wire(
        frozenset({"SET"}),
        frozenset({lock._release_script.sha}),  # noqa: SLF001 -- there is no public attribute
        frozenset({lock._extend_script.sha}),  # noqa: SLF001 -- see above
    )


_KEY = OneKey("redlock:")


_common = partial(
    Contender,
    distribution="pottery",
    wire=_pottery_wire,
    left=_KEY.left,
    remaining=_KEY.remaining,
    extends="again",
    remarks=("Its Redlock over one master; a lease can be extended three times.",),
)

CONTENDERS = (
    _common("pottery", sync=OverRedis(_Pottery)),
    _common("pottery (asyncio)", aio=OverAioRedis(_PotteryAio)),
)
