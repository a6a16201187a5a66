"""Undo operations that callers have given up: in their own threads, though not for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.context import Context
from handfast._drivers.sync.performing import run
from handfast._engine.effects import Steps
from handfast._protocol.retry import UNDO_WAIT

__all__ = ["GOES_ON_ALONE", "clean_up", "may_wait"]

T = TypeVar("T")

GOES_ON_ALONE = OWN_ERRORS
"""After these errors the caller waits for no undo: it gets the error at once."""


def clean_up(
    context: Context,
    undos: Sequence[Callable[[], Steps[T]]],
    name: str,
    apart: Sequence[Callable[[], Steps[Any]]] = (),
) -> list[T | None]:
    """Perform undos: in this thread for UNDO_WAIT seconds, then in the background; those ``apart`` at once.

    Return the result of each; None for an undo that goes on. An interrupt leaves all to the background.
    """
    until, left, results = monotonic() + UNDO_WAIT, [*undos], list[T | None]()
    try:
        while left and monotonic() < until:
            try:
                results.append(run(context, left[0](), name, until))
            except OWN_ERRORS as error:
                log.unfinished_cleanup(name, error)
                context.renewer.clean_up(left[0]())
                results.append(None)
            del left[0]
    finally:
        for undo in [*left, *apart]:
            context.renewer.clean_up(undo())
    return [*results, *[None] * len(left)]


def may_wait(_error: BaseException | None) -> bool:
    """Return True: a thread may wait whatever has happened, where a closed coroutine may not."""
    return True
