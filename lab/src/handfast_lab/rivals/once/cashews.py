"""cashews, with ``lock=True``, by which one of several callers runs.

Its early refresh has no lock for a first result, so it is not tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from handfast_lab.rivals.once.contender import Lifetimes, OnceContender, Runner, Work

__all__ = ["CONTENDERS"]


class _Cache:
    def __init__(self, cache: Any, lifetimes: Lifetimes, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._works: dict[str, Work] = {}

        @cache.cache(ttl=lifetimes.keep, key="trial:{key}", lock=True)  # type: ignore[untyped-decorator]
        async def answer(key: str) -> str:
            return await asyncio.to_thread(self._works[key])

        self._answer = answer

    def run(self, key: str, work: Work) -> str:
        return self.run_many(key, work, 1)[0]

    def run_many(self, key: str, work: Work, callers: int) -> list[str]:
        self._works[key] = work

        async def run_all() -> list[str]:
            answers: list[str] = await asyncio.gather(*(self._answer(key) for _ in range(callers)))
            return answers

        return self._runner.run(run_all())


@contextlib.contextmanager
def _opened(url: str, lifetimes: Lifetimes) -> Iterator[Runner]:
    with asyncio.Runner() as runner:
        cache = importlib.import_module("cashews").Cache()
        cache.setup("redis://", address=url, client_side=False)  # it knows a unix socket by its address alone
        try:
            yield _Cache(cache, lifetimes, runner)
        finally:
            runner.run(cache.close())


CONTENDERS = (OnceContender("cashews", "cashews", _opened, refreshes=False),)
