"""Which functions a lock may decorate: those of its own colour."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["require_coroutine_function", "require_plain_function"]


def require_coroutine_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for what is no coroutine function, before it runs without the lock."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is no coroutine function: decorate it with a lock of Holdfast")


def require_plain_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for what only begins to run when it is awaited, after the lock was given up."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} is asynchronous: decorate it with a lock of AsyncHoldfast")
