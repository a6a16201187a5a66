# Generated from _api/aio/collecting.py by tools/unasync.py: edit that file and run the tool.
"""The block of a call with an item: the newest call of a burst gets the items of all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from handfast._api.blocks import Entrance
from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.effects import Steps
from handfast._engine.objects import ObjectRequest
from handfast._objects import BlockOnly
from handfast._protocol import debouncing
from handfast._protocol.asking import ObjectAttempt
from handfast._protocol.debouncing import Batch

__all__ = ["Collecting"]


class Collecting(BlockOnly, AbstractContextManager[tuple[Any, ...]]):
    """Leaves an item when it is entered. The value is the items of the run, or none where a later call runs."""

    def __init__(
        self,
        driver: SyncDriver,
        request: ObjectRequest,
        collect: Callable[[ObjectAttempt], Steps[Batch | None]],
        decode: Callable[[bytes], Any],
    ) -> None:
        self._driver = driver
        self._request = request
        self._collect = collect
        self._decode = decode
        self._entrance = Entrance(self, "call collect() for each item")
        self._attempt: ObjectAttempt | None = None
        self._batch: Batch | None = None
        """The items of this run; None where a later call runs, or where they are given back."""

    def __repr__(self) -> str:
        return f"<collect() of {self._request.name!r}>"

    def __enter__(self) -> tuple[Any, ...]:
        self._entrance.claim()
        self._attempt = attempt = self._driver.begin(ObjectAttempt, self._request)
        try:
            self._batch = batch = self._driver.wait(attempt, self._collect(attempt))
            return () if batch is None else tuple(map(self._decode, batch.items))
        except BaseException as error:  # what was taken is there for the next run
            self._driver.undo(attempt, error)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._leave(exc)
        except OWN_ERRORS:
            raise
        except BaseException:
            self._leave(exc)
            raise

    def _leave(self, error: BaseException | None) -> None:
        """Have the server forget the items, or give them to another run. It may be called again."""
        attempt, batch = self._attempt, self._batch
        if attempt is None or batch is None:
            return
        if error is not None:
            attempt.is_unanswered = isinstance(error, GeneratorExit)  # then nothing may wait for the undo
            self._driver.undo(attempt)
        else:
            self._driver.finish(partial(debouncing.end, self._request, attempt.token, batch), self._request.name)
            if monotonic() > batch.until:
                log.late_batch(self._request.name)
        self._batch = None
