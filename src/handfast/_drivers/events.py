"""Reports of the drivers: first to the log, then to the functions of `Handfast.on`.

Drivers call `Events`, or the `Dispatcher` for an event without a log record. A dispatcher exists only while a function
listens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from handfast._drivers import log
from handfast._engine.messages import Wanted
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.lease import LeaseState
from handfast._protocol.loss import DROPPED
from handfast._protocol.outage import OutageBegins, OutageEnds

if TYPE_CHECKING:
    from handfast._drivers.dispatcher import Dispatcher, Listener
    from handfast.events import Event

__all__ = ["Events"]


class Events:
    """The events of one client."""

    __slots__ = ("_listeners", "dispatcher")

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        """Threads append and remove at once, which needs no lock."""
        self.dispatcher: Dispatcher | None = None
        """Calls the functions that listen. None without a function; another thread may set that at any moment."""

    def on(self, callback: Callable[[Any], object], types: tuple[type[Event], ...]) -> Callable[[], None]:
        """Have a function called with each event of these types; of all types, if none are given.

        Return a function to end the calls. Raises TypeError.
        """
        from handfast._drivers.dispatcher import Dispatcher, Listener
        from handfast.events import Event

        if not callable(callback) or iscoroutinefunction(callback):
            raise TypeError(f"on() needs a function that is not awaited, not {callback!r}")
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                raise TypeError(f"on() takes classes of handfast.events, not {kind!r}")
        listener = Listener(callback, types or (Event,))
        self._listeners.append(listener)
        self.dispatcher = Dispatcher(self._listeners)

        def stop() -> None:
            listener.is_stopped = True  # some events may wait for its thread
            with suppress(ValueError):  # it was stopped before
                self._listeners.remove(listener)
            if not self._listeners:
                self.dispatcher = None
                if self._listeners:  # again: another thread has added one in between
                    self.dispatcher = Dispatcher(self._listeners)

        return stop

    def acquired(self, lease: LeaseState, attempt: BaseAttempt | None = None) -> None:
        """Report a new lease of an attempt; a lease without an attempt was adopted."""
        log.acquired(lease)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.acquired(lease, attempt)

    def released(self, lease: LeaseState) -> None:
        """Report the release of a lease by the holder."""
        log.released(lease)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.ended(lease)

    def lost(self, lease: LeaseState) -> None:
        """Report a loss."""
        log.lost(lease)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.lost(lease, lease.loss)

    def dropped(self, what: str, lease: LeaseState) -> None:
        """Report a lease dropped without a release.

        May be called at any point of any thread, by the garbage collector.
        """
        log.dropped(what, lease)
        if (dispatcher := self.dispatcher) is not None:
            for part in lease.parts:
                dispatcher.lost(part, DROPPED)

    def wanted(self, lease: LeaseState, told: Wanted) -> None:
        """Report a request to a holder to end."""
        log.wanted(lease, told)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.wanted(lease, told)

    def renewal_refused(self, name: str, outcome: object) -> None:
        """Report a renewal refused by the server."""
        log.renewal_refused(name, outcome)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.renewal_failed(outcome)

    def renewal_failed(self, error: object) -> None:
        """Report renewals that did not reach the server, or got no answer."""
        log.renewal_failed(error)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.renewal_failed(error)

    def outage(self, change: OutageBegins | OutageEnds) -> None:
        """Report the beginning or the end of an outage."""
        log.outage(change)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.outage(change)
