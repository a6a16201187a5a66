"""What drivers report: to the log, which hears of it first, and to the functions of `Handfast.on`.

Drivers call this, and where the log has no part in it, the `Teller`, which is there only while a function listens.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from handfast._drivers import log
from handfast._engine.messages import Wanted
from handfast._protocol.lease import LeaseState
from handfast._protocol.outage import OutageBegins, OutageEnds

if TYPE_CHECKING:
    from handfast._drivers.teller import Teller
    from handfast.events import Event

__all__ = ["Events"]


class Events:
    """What happens in one client."""

    __slots__ = ("teller",)

    def __init__(self) -> None:
        self.teller: Teller | None = None
        """What calls the functions that listen; None while there are none."""

    def on(self, callback: Callable[[Any], object], types: tuple[type[Event], ...]) -> Callable[[], None]:
        """Have a function called with each event of these types; of all, if there are none. Return what ends that.

        Raises TypeError.
        """
        from handfast._drivers.teller import Listener, Teller
        from handfast.events import Event

        if not callable(callback) or iscoroutinefunction(callback):
            raise TypeError(f"on() needs a function that is not awaited, not {callback!r}")
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                raise TypeError(f"on() takes classes of handfast.events, not {kind!r}")
        listener = Listener(callback, types or (Event,))
        self.teller = Teller((*(() if self.teller is None else self.teller.listeners), listener))

        def stop() -> None:
            if self.teller is not None:
                left = tuple(one for one in self.teller.listeners if one is not listener)
                self.teller = Teller(left) if left else None

        return stop

    def acquired(self, lease: LeaseState, position: int | None = None) -> None:
        """Report a new lease."""
        log.acquired(lease)
        if self.teller is not None:
            self.teller.acquired(lease, position)

    def released(self, lease: LeaseState) -> None:
        """Report that a holder has released its lease."""
        log.released(lease)
        if self.teller is not None:
            self.teller.ended(lease)

    def lost(self, lease: LeaseState) -> None:
        """Report a loss."""
        log.lost(lease)
        if self.teller is not None:
            self.teller.lost(lease, lease.loss_cause, lease.loss or "")

    def dropped(self, what: str, lease: LeaseState) -> None:
        """Report that a lease went without a release. May be called at any point of any thread, by the garbage collector."""
        log.dropped(what, lease)
        if self.teller is not None:
            for part in lease.parts:
                self.teller.lost(part, "dropped", "the program kept no reference to it")

    def wanted(self, lease: LeaseState, told: Wanted) -> None:
        """Report that a holder is asked to end."""
        log.wanted(lease, told)
        if self.teller is not None:
            self.teller.wanted(lease, told)

    def renewal_refused(self, name: str, outcome: object) -> None:
        """Report that the server has refused a renewal."""
        log.renewal_refused(name, outcome)
        if self.teller is not None:
            self.teller.renewal_failed(outcome)

    def renewal_failed(self, error: object) -> None:
        """Report that renewals did not reach the server, or got no answer."""
        log.renewal_failed(error)
        if self.teller is not None:
            self.teller.renewal_failed(error)

    def outage(self, change: OutageBegins | OutageEnds) -> None:
        """Report the beginning or the end of an outage."""
        log.outage(change)
        if self.teller is not None:
            self.teller.outage(change)
