"""Which functions a lock may decorate: those whose body runs while the lock is held, and that are of its own colour."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["require_coroutine_function", "require_plain_function"]


def require_coroutine_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for what a lock of AsyncHandfast cannot hold the lock around."""
    _require_no_generator(function)
    if not _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{function!r} is no coroutine function: decorate it with a lock of Handfast")


def require_plain_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for what a lock of Handfast cannot hold the lock around."""
    _require_no_generator(function)
    if _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{function!r} is asynchronous: decorate it with a lock of AsyncHandfast")


def _require_no_generator(function: Callable[..., Any]) -> None:
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TypeError(f"{function!r} is a generator, whose body runs after the call: use a with block within it")


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Whether a function, or the call of an object that acts as one, is of that kind."""
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004 -- what is asked for is the method
