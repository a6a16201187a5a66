"""Many callers in threads of one process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["in_threads"]


def in_threads(call: Callable[[], str], callers: int) -> list[str]:
    """Return what so many threads get that call at once."""
    with ThreadPoolExecutor(callers) as pool:
        return [future.result() for future in [pool.submit(call) for _ in range(callers)]]
