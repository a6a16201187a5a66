"""dogpile.cache, with the lock that its documentation names for several processes. It waits in threads."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from handfast_lab.rivals.once.contender import Lifetimes, OnceContender, Runner, Work
from handfast_lab.rivals.once.threads import in_threads

__all__ = ["CONTENDERS"]


class _Region:
    def __init__(self, region: Any, lifetimes: Lifetimes) -> None:
        self._region = region
        self._expiration = lifetimes.refresh or lifetimes.keep

    def run(self, key: str, work: Work) -> str:
        return str(self._region.get_or_create(key, work, expiration_time=self._expiration))

    def run_many(self, key: str, work: Work, callers: int) -> list[str]:
        return in_threads(lambda: self.run(key, work), callers)


@contextlib.contextmanager
def _opened(url: str, lifetimes: Lifetimes) -> Iterator[Runner]:
    arguments = {
        "url": url,
        "redis_expiration_time": max(1, round(lifetimes.keep)),
        "distributed_lock": True,
        "thread_local_lock": False,
        "lock_timeout": lifetimes.ttl,
    }
    region = importlib.import_module("dogpile.cache").make_region()
    region.configure("dogpile.cache.redis", arguments=arguments)
    try:
        yield _Region(region, lifetimes)
    finally:
        region.backend.writer_client.close()


CONTENDERS = (OnceContender("dogpile.cache", "dogpile.cache", _opened),)
