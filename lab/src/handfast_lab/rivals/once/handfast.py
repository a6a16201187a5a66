"""Handfast's `once`, in both APIs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import Any

from handfast import AsyncHandfast, Handfast, LeaseLost
from handfast_lab.rivals.once.contender import Lifetimes, OnceContender, RunLost, Runner, Work
from handfast_lab.rivals.once.threads import in_threads

__all__ = ["CONTENDERS"]


class _Ours:
    def __init__(self, once: Any) -> None:
        self._once = once

    def run(self, key: str, work: Work) -> str:
        try:
            return str(self._once.keyed(key).run(work))
        except LeaseLost as error:
            raise RunLost from error

    def run_many(self, key: str, work: Work, callers: int) -> list[str]:
        return in_threads(lambda: self.run(key, work), callers)


class _OursAio:
    def __init__(self, once: Any, runner: asyncio.Runner) -> None:
        self._once, self._runner = once, runner

    def run(self, key: str, work: Work) -> str:
        return self.run_many(key, work, 1)[0]

    def run_many(self, key: str, work: Work, callers: int) -> list[str]:
        once = self._once.keyed(key)

        def in_thread() -> Awaitable[str]:
            return asyncio.to_thread(work)

        async def run_all() -> list[str]:
            results: list[str] = await asyncio.gather(*(once.run(in_thread) for _ in range(callers)))
            return results

        try:
            return self._runner.run(run_all())
        except LeaseLost as error:
            raise RunLost from error


@contextlib.contextmanager
def _ours(url: str, lifetimes: Lifetimes) -> Iterator[Runner]:
    with Handfast(url) as hf:
        yield _Ours(hf.once("trial", **lifetimes._asdict()))


@contextlib.contextmanager
def _ours_aio(url: str, lifetimes: Lifetimes) -> Iterator[Runner]:
    with asyncio.Runner() as runner:
        hf = AsyncHandfast(url)
        try:
            yield _OursAio(hf.once("trial", **lifetimes._asdict()), runner)
        finally:
            runner.run(hf.aclose())


CONTENDERS = (
    OnceContender("handfast", "handfast", _ours),
    OnceContender("handfast (asyncio)", "handfast", _ours_aio),
)
