"""Which functions a primitive may decorate: those of its own API whose body runs while the lease is held."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["require_coroutine_function", "require_plain_function"]


def require_coroutine_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for a function that a lock of AsyncHandfast can't decorate."""
    _refuse_generators(function)
    if not _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{function!r} is not a coroutine function; decorate it with a lock of Handfast")


def require_plain_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for a function that a lock of Handfast can't decorate."""
    _refuse_generators(function)
    if _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{function!r} is a coroutine function; decorate it with a lock of AsyncHandfast")


def _refuse_generators(function: Callable[..., Any]) -> None:
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TypeError(f"{function!r} is a generator function, whose body runs after the call; use a with block in it")


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Return whether a function, or the ``__call__`` of a callable object, is of that kind."""
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004 -- the method itself is needed
