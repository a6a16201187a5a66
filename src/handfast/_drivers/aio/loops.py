"""Which event loop this is: what belongs to a loop may only be touched by the thread that runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

__all__ = ["call_on", "current_task", "runs_here"]


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this very thread runs that loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def current_task() -> asyncio.Task[Any] | None:
    """The task that is running, if a loop is."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """Call a function now if this is its loop's thread, else as soon as that gets to it. A closed loop never does."""
    if runs_here(loop):
        function(*args)
    else:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)
