"""What is read off a process and off the server while something is measured: connections and memory.

Memory is what the system says that the process has in its real memory, in pages. `tracemalloc` would see single
objects, but only those of Python's own allocators (hiredis and the sockets' buffers are not among them), and would slow
every allocation while tasks connect. Pages are coarse, so it takes a thousand waiters for a figure, and the allocator
gives back what earlier work used before it asks for pages: therefore a fresh process each time.
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
    """Counts the connections that were made after its own."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url)  # typed as if it could be asynchronous
        self._own = int(self._client.client_id())

    def count(self) -> int:
        """How many there are now. The server numbers its clients as they come."""
        return sum(int(client["id"]) > self._own for client in self._client.client_list())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()


def resident() -> int | None:
    """The bytes of this process that are in real memory, rubbish taken out first; None where the system does not say."""
    gc.collect()
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def take_all_files() -> None:
    """Allow this process as many open files as the system lets it have: most shells begin with 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
