"""Detect leaked resources: keys, connections, channels, threads, tasks, file descriptors and memory.

`LeakWatch` compares the resources after a block with those before it. Resources take a moment to close, so it polls for
some seconds and reports only those that remain. `MemoryWatch` fits a line through memory use against the number of
operations: memory that is allocated once is not a leak, memory that grows with every operation is.

Both observe this process and a server that no other program uses at the same time.
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
from handfast_lab.stored import PARTS, read_stored

__all__ = ["LASTING", "LeakWatch", "MemoryWatch", "compare", "resident_memory", "snapshot", "traced_memory"]

Snapshot = Mapping[str, Counter[str]]
"""For each kind of resource, the resources that exist and the number of each."""

LASTING = PARTS
"""Parts of the state of a name that remain for an hour or two by design: the latest fence, and tombstones. A name that
is held or wanted is reported all the same."""

PAUSE = 0.01
"""Poll interval in seconds."""

FEW = 5
"""Number of resources that the text of a finding lists."""


def snapshot(
    client: redis.Redis | None = None, namespace: str | None = None, *, lasting: Collection[str] = LASTING
) -> Snapshot:
    """Return the resources that exist now.

    Without a client only those of this process are included; without a namespace all keys and channels of the server
    count.
    """
    found = {
        "threads": Counter(thread.name for thread in threading.enumerate()),
        "tasks": _tasks(),
        "descriptors": _descriptors(),
    }
    if client is not None:
        encoded = None if namespace is None else encode_name(namespace, "namespace")
        keys = list(map(_text, client.scan_iter("*" if encoded is None else f"{{{encoded}:*", count=1000)))
        tags = {key.rpartition(":")[0] for key in keys if _part(key) in PARTS}
        busy = {tag for tag in tags if read_stored(client, tag).is_busy}
        channels = map(_text, client.pubsub_channels("*" if encoded is None else f"{encoded}:*"))
        found["keys"] = Counter(key for key in keys if _part(key) not in lasting or key.rpartition(":")[0] in busy)
        found["channels"] = Counter(channels)
        found["connections"] = Counter(_kind(connection["flags"]) for connection in client.client_list())
    return found


def compare(before: Snapshot, after: Snapshot) -> list[Finding]:
    """Return one finding for each kind of resource that has grown."""
    found = []
    for what, things in after.items():
        more = things - before.get(what, Counter())
        if more:
            names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in more.most_common(FEW))
            text = f"{more.total()} left behind: {names}" + (", ..." if len(more) > FEW else "")
            found.append(Finding("leaks", what, text))
    return found


class LeakWatch:
    """A context manager, sync or asyncio, whose ``findings`` list the resources that its block leaked.

    ``within`` is how long, in seconds, resources may take to close. The tasks are those of the running loop.
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
        self._look()  # warm-up: the first snapshot itself opens resources
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
        while self._finds() and time.monotonic() < until:  # noqa: ASYNC110 -- a server sends no event when a resource closes
            await asyncio.sleep(PAUSE)

    def _finds(self) -> bool:
        gc.collect()
        self.findings = compare(self._before, self._look())
        return bool(self.findings)

    def _look(self) -> Snapshot:
        return snapshot(self._client, self._namespace, lasting=self._lasting)


def traced_memory() -> int:
    """Return the bytes allocated by Python objects.

    The first call starts tracemalloc, which keeps running until it is stopped.
    """
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


def resident_memory(process: int | None = None) -> int:
    """Return the resident memory of a process in bytes; of this process by default. Linux only."""
    pages = Path(f"/proc/{process or 'self'}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Measures the memory that each operation retains. Run one batch of operations before creating it, as a warm-up."""

    def __init__(self, measure: Callable[[], int] = traced_memory) -> None:
        self._measure = measure
        self._operations: list[int] = []
        self._bytes: list[int] = []
        self.sample(0)

    def sample(self, operations: int) -> None:
        """Take a sample after this many further operations."""
        gc.collect()
        self._operations.append(operations + (self._operations[-1] if self._operations else 0))
        self._bytes.append(self._measure())

    @property
    def slope(self) -> float:
        """Bytes per operation: the slope of the regression line through all samples, at least two."""
        return linear_regression(self._operations, self._bytes).slope

    def findings(self, most: float = 1.0) -> list[Finding]:
        """Return one finding if an operation retains more than ``most`` bytes."""
        text = f"{self.slope:.2f} bytes an operation over {self._operations[-1]} operations"
        return [Finding("leaks", "memory", text)] if self.slope > most else []


def _tasks() -> Counter[str]:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop is running here
        return Counter()
    return Counter(getattr(task.get_coro(), "__qualname__", repr(task)) for task in tasks)


def _descriptors() -> Counter[str]:
    """Count the open files of this process: sockets, pipes and the like by their kind, other files by their path."""
    found: Counter[str] = Counter()
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            target = str(entry.readlink())
        except OSError:  # the descriptor through which the folder is listed
            continue
        if not target.startswith("/proc/"):
            found[re.sub(r":\[\d+\]$", "", target)] += 1
    return found


def _part(key: str) -> str:
    return key.rpartition(":")[2]


def _kind(flags: str) -> str:
    return "pubsub" if "P" in flags else "replica" if set(flags) & set("SM") else "normal"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
