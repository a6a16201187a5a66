"""Repeat an action in a thread of its own while a block runs: faults that strike again and again, and observers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["repeating"]


@contextmanager
def repeating(action: Callable[[], object], pause: Callable[[], float]) -> Iterator[None]:
    """Call `action` after every `pause()` seconds until the block ends, and let a call that has begun finish."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause()):
            action()

    thread = threading.Thread(target=run, name="torture-background", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
