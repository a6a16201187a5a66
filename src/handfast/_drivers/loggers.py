"""Log on a thread of its own, where a handler that is slow or hangs keeps nothing from being renewed.

A handler is a user's code: it may post a record to a web service, or wait for a lock that another thread holds.
"""

from __future__ import annotations

import logging
from functools import partial

from handfast._drivers.background import Background

__all__ = ["LoggerApart"]

_handling = Background("handfast-records", daemon=False)
"""For all of them, so that records keep their order. No daemon: the last record of a program is often the one that says why it ends."""


class LoggerApart(logging.Logger):
    """Makes records where it is called, with that moment and that thread, and has the logger of its name handle them soon."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._logger = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 -- logging's
        return self._logger.isEnabledFor(level)

    def handle(self, record: logging.LogRecord) -> None:
        try:
            _handling.call(partial(self._logger.handle, record))
        except RuntimeError:  # the interpreter is ending
            self._logger.handle(record)
