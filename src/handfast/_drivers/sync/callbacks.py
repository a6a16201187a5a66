"""Call the lost callbacks of a client, on a separate thread.

A callback is a user's code: it may wait for a lock, and it may raise anything. So it runs neither on the renewal thread
nor in a call that happens to find a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from handfast._drivers import log
from handfast._drivers.background import Background

__all__ = ["CallbackThread"]


class CallbackThread:
    """Calls callbacks one after the other, in the order in which they were added."""

    def __init__(self) -> None:
        self._background = Background("handfast-callbacks", daemon=True)

    def call(self, callback: Callable[[], object], name: str) -> None:
        """Have a callback for the lost lease of ``name`` called soon.

        Raises RuntimeError if no thread can be started.
        """
        self._background.call(partial(self._call, callback, name))

    @staticmethod
    def _call(callback: Callable[[], object], name: str) -> None:
        try:
            callback()
        except BaseException:  # noqa: BLE001 -- it is logged: nothing else is to suffer
            log.callback_failed(name)
