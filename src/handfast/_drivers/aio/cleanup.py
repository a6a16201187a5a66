"""Undo operations that callers have given up. The callers wait for the undo, though not for long."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from handfast._drivers import log
from handfast._drivers.aio.context import Context
from handfast._drivers.failures import OWN_ERRORS
from handfast._engine.effects import Steps
from handfast._protocol.retry import UNDO_WAIT

__all__ = ["GOES_ON_ALONE", "clean_up", "may_wait"]

T = TypeVar("T")

GOES_ON_ALONE = (*OWN_ERRORS, GeneratorExit)
"""After these errors the caller waits for no undo: it gets the error at once, or its coroutine was closed."""


async def clean_up(
    context: Context,
    undos: Sequence[Callable[[], Steps[T]]],
    name: str,
    apart: Sequence[Callable[[], Steps[Any]]] = (),
) -> list[T | None]:
    """Perform undos in the background, and wait for them for UNDO_WAIT seconds; not for those ``apart``.

    Return the result of each; None for an undo that goes on. All are sent before anything is awaited. A cancellation
    ends the wait and not the undos.
    """
    begun = [context.renewer.clean_up(undo()) for undo in undos]
    for undo in apart:
        context.renewer.clean_up(undo())
    if begun:
        _, late = await asyncio.wait(begun, timeout=UNDO_WAIT)
        if late:
            log.unfinished_cleanup(name, "the server did not answer in time")
    return [one.result() if one.done() else None for one in begun]


def may_wait(error: BaseException | None) -> bool:
    """Return whether the caller, which handles this error, may await: a closed coroutine may not, an async generator may."""
    if not isinstance(error, GeneratorExit):
        return True
    frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells the two apart
    while frame.f_back is not None and frame.f_code.co_flags & inspect.CO_COROUTINE:
        frame = frame.f_back
    return bool(frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)
