"""Client processes that do things once, and that can be killed and frozen meanwhile."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import NamedTuple

from handfast_lab.children import ChildProcess, Parent, ProcessGroup
from handfast_lab.rivals.once import RUNNERS
from handfast_lab.rivals.once.contender import Lifetimes, OnceContender, RunLost, Runner, Work

__all__ = ["Called", "OnceUser", "OnceUsers"]

START_TIMEOUT_S = 20.0
"""Seconds within which a process must be ready."""


class Called(NamedTuple):
    """What a process that asks again and again saw."""

    calls: int
    longest: float
    """The longest call that ran nothing, in seconds."""


class OnceUser:
    """The program of a process: it asks for keys, and reports runs and results."""

    def __init__(self, parent: Parent, runner: Runner) -> None:
        self.report, self.runner, self.numbers = parent.report, runner, count()
        self.orders: dict[str, Callable[..., None]] = {"ask": self.ask, "ask often": self.ask_often}

    def work(self, seconds: float) -> Work:
        """Return work that lasts so long; its result is another text in each run."""

        def run() -> str:
            result = f"{os.getpid()}/{next(self.numbers)}"
            self.report("running", result)
            time.sleep(seconds)
            self.report("ran", result)
            return result

        return run

    def ask(self, key: str, seconds: float, callers: int = 1) -> None:
        """Let so many callers ask for a key at once. One whose run was lost asks again."""
        while True:
            try:
                work = self.work(seconds)
                results = self.runner.run_many(key, work, callers) if callers > 1 else [self.runner.run(key, work)]
            except RunLost:
                self.report("refused")
            else:
                self.report("answered", results)
                return

    def ask_often(self, key: str, work_s: float, seconds: float) -> None:
        """Ask for a key again and again."""
        calls, longest, until = 0, 0.0, monotonic() + seconds
        self.runner.run(key, self.work(work_s))
        before, ran = next(self.numbers), False
        while (began := monotonic()) < until:
            self.runner.run(key, self.work(work_s))
            after = next(self.numbers)
            ran, before = after > before + 1, after
            longest = longest if ran else max(longest, monotonic() - began)
            calls += 1
        self.report("asked", Called(calls, longest))


class OnceUsers(ProcessGroup):
    """The client processes of a trial."""

    def __init__(
        self, contender: OnceContender, url: str, lifetimes: Lifetimes, kind: type[OnceUser] = OnceUser
    ) -> None:
        super().__init__(preload=[__name__])
        self._args = kind, contender.name, url, lifetimes

    def new(self, number: int = 1) -> list[ChildProcess]:
        """Start that many processes and wait until all are ready. Raises ProcessFailed."""
        users = [self.start(_serve, *self._args) for _ in range(number)]
        for user in users:
            user.expect("ready", START_TIMEOUT_S)
        return users


def _serve(parent: Parent, kind: type[OnceUser], contender: str, url: str, lifetimes: Lifetimes) -> None:
    logging.disable(logging.CRITICAL)
    with RUNNERS[contender].open(url, lifetimes) as runner:
        parent.report("ready")
        parent.serve(kind(parent, runner).orders)
