"""What is left behind by work that is done: keys, connections, channels, threads, tasks, file descriptors, memory.

`LeakWatch` compares what there was before a block with what there is after it. Things take a moment to end, so it looks
again and again for some seconds, and finds only what stays. `MemoryWatch` fits a line through what is in use after so
and so many operations: what is kept once is no leak, what grows with every operation is one.

They look at this process and at a server that nobody else uses meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from statistics import linear_regression
from types import TracebackType
from typing import Any, Self

import redis

from handfast._engine.validate import encode_name
from handfast_lab.checker.finding import Finding

__all__ = ["LASTING", "LeakWatch", "MemoryWatch", "compare", "resident_memory", "snapshot", "traced_memory"]

Snapshot = Mapping[str, Counter[str]]
"""Of each kind of resource what there is, and how much of it."""

LASTING = "tokens", "tombstones"
"""Parts of a name's state that stay for a while by design: its fence for an hour, and who was released for some seconds."""

PAUSE = 0.01
"""Seconds between two looks."""

FEW = 5
"""Things that a text names."""


def snapshot(
    client: redis.Redis | None = None, namespace: str | None = None, *, lasting: Collection[str] = LASTING
) -> Snapshot:
    """What there is now. Without a client only of this process; without a namespace all keys and channels count."""
    found = {
        "threads": Counter(thread.name for thread in threading.enumerate()),
        "tasks": _tasks(),
        "descriptors": _descriptors(),
    }
    if client is not None:
        encoded = None if namespace is None else encode_name(namespace, "namespace")
        keys = map(_text, client.scan_iter("*" if encoded is None else f"{{{encoded}:*", count=1000))
        channels = map(_text, client.pubsub_channels("*" if encoded is None else f"{encoded}:*"))
        found["keys"] = Counter(key for key in keys if key.rpartition(":")[2] not in lasting)
        found["channels"] = Counter(channels)
        found["connections"] = Counter(_kind(connection["flags"]) for connection in client.client_list())
    return found


def compare(before: Snapshot, after: Snapshot) -> list[Finding]:
    """One finding for each kind of resource that there is more of."""
    found = []
    for what, things in after.items():
        more = things - before.get(what, Counter())
        if more:
            names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in more.most_common(FEW))
            text = f"{more.total()} left behind: {names}" + (", ..." if len(more) > FEW else "")
            found.append(Finding("leaks", what, text))
    return found


class LeakWatch:
    """A block, sync or asyncio, after which ``findings`` says what it has left behind.

    ``within`` is for how many seconds things may take to end. Tasks are those of the running loop.
    """

    def __init__(
        self,
        client: redis.Redis | None = None,
        namespace: str | None = None,
        *,
        within: float = 5.0,
        lasting: Collection[str] = LASTING,
    ) -> None:
        self._client, self._namespace, self._within, self._lasting = client, namespace, within, lasting
        self._before: Snapshot = {}
        self.findings: list[Finding] = []

    def __enter__(self) -> Self:
        self._look()  # so that what the first look itself needs is there before
        self._before = self._look()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        until = time.monotonic() + self._within
        while self._finds() and time.monotonic() < until:
            time.sleep(PAUSE)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        until = time.monotonic() + self._within
        while self._finds() and time.monotonic() < until:  # noqa: ASYNC110 -- what ends on a server sets no event here
            await asyncio.sleep(PAUSE)

    def _finds(self) -> bool:
        gc.collect()
        self.findings = compare(self._before, self._look())
        return bool(self.findings)

    def _look(self) -> Snapshot:
        return snapshot(self._client, self._namespace, lasting=self._lasting)


def traced_memory() -> int:
    """Bytes that Python objects take up. tracemalloc is started when it is asked first, and goes on until it is stopped."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


def resident_memory(process: int | None = None) -> int:
    """Bytes of memory that a process has, this one if none is named. Linux only."""
    pages = Path(f"/proc/{process or 'self'}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """How much more memory each operation keeps. Let the first chunk of operations be over before the first sample."""

    def __init__(self, measure: Callable[[], int] = traced_memory) -> None:
        self._measure = measure
        self._operations: list[int] = []
        self._bytes: list[int] = []
        self.sample(0)

    def sample(self, operations: int) -> None:
        """So many more operations are done."""
        gc.collect()
        self._operations.append(operations + (self._operations[-1] if self._operations else 0))
        self._bytes.append(self._measure())

    @property
    def slope(self) -> float:
        """Bytes an operation, as the straight line through all samples has it; there must be two."""
        return linear_regression(self._operations, self._bytes).slope

    def findings(self, most: float = 1.0) -> list[Finding]:
        """One if it is more than so many bytes."""
        text = f"{self.slope:.2f} bytes an operation over {self._operations[-1]} operations"
        return [Finding("leaks", "memory", text)] if self.slope > most else []


def _tasks() -> Counter[str]:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop is running here
        return Counter()
    return Counter(getattr(task.get_coro(), "__qualname__", repr(task)) for task in tasks)


def _descriptors() -> Counter[str]:
    """The open files of this process: what is one of many by its kind, everything else by its path."""
    found: Counter[str] = Counter()
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            target = str(entry.readlink())
        except OSError:  # the one by which the folder is read
            continue
        if not target.startswith("/proc/"):
            found[re.sub(r":\[\d+\]$", "", target)] += 1
    return found


def _kind(flags: str) -> str:
    return "pubsub" if "P" in flags else "replica" if set(flags) & set("SM") else "normal"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
