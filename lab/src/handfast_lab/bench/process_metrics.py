"""Connections on the server and memory of a process, read during a measurement.

Memory is the resident memory that the system reports, in pages. `tracemalloc` would count single objects, but only
those of Python's allocators (not those of hiredis or the socket buffers), and would slow every allocation while tasks
connect. Pages are coarse, so a figure needs a thousand waiters. The allocator reuses memory freed by earlier work
before it requests pages, so each measurement needs a fresh process.
"""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

__all__ = ["Counter", "resident", "take_all_files"]

STATM = Path("/proc/self/statm")


class Counter:
    """Counts the connections opened after its own."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url)  # redis-py types its replies as possibly asynchronous
        self._own = int(self._client.client_id())

    def count(self) -> int:
        """Return their current number. Client ids increase with every connection to the server."""
        return sum(int(client["id"]) > self._own for client in self._client.client_list())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()


def resident() -> int | None:
    """Return the resident memory of this process in bytes, after a garbage collection.

    None if the system does not report it.
    """
    gc.collect()
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def take_all_files() -> None:
    """Raise the limit on open files to the hard limit; the default of most shells is 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
