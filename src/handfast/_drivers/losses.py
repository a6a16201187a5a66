"""Notify holders of lost or wanted leases, and operators of outages. Both drivers' renewers share this."""

from __future__ import annotations

from collections.abc import Callable

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.events import Events
from handfast._engine.effects import Answer
from handfast._engine.messages import Told, Wanted
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState, LeaseTable, Renewal
from handfast._protocol.loss import Loss, revoked
from handfast._protocol.outage import OutageWatch

__all__ = ["LossNotifier", "WhenWanted", "heard", "run_lost_callbacks", "run_wanted", "run_wanted_callbacks"]


class LossNotifier:
    """Removes lost leases from the table and notifies their holders."""

    def __init__(self, leases: LeaseTable, events: Events) -> None:
        self._leases = leases
        self._events = events
        self._outages = OutageWatch(leases)

    def lose(self, lease: LeaseState, loss: Loss) -> None:
        self._leases.lose(lease, loss, monotonic())
        self.notify_lost(lease)

    def tell(self, lease: LeaseState, told: Told) -> None:
        """Tell a holder why the lease was taken away, or ask the holder to end."""
        if not isinstance(told, Wanted):
            self.lose(lease, revoked(told))
        elif lease.want(told, monotonic()):
            self._events.wanted(lease, told)
            run_wanted_callbacks(lease)

    def notify_lost(self, lease: LeaseState) -> None:
        """Report the loss and call the callbacks."""
        self._events.lost(lease)
        run_lost_callbacks(lease)

    def settle(self, lease: LeaseState, outcome: Answer | ErrorReply, now: float) -> Renewal:
        """Judge the outcome of a renewal and notify of a loss. Return the remaining work."""
        verdict = self._leases.settle(lease, outcome, now)
        if verdict is Renewal.LOST:
            self.notify_lost(lease)
        elif verdict in (Renewal.RETRY, Renewal.RECONNECT):
            self._events.renewal_refused(lease.request.name, outcome)
        return verdict

    def note_failure(self, error: BaseException) -> None:
        """Note why the renewals in progress failed."""
        self._events.renewal_failed(error)
        self._leases.note_failure(error)

    def review(self) -> None:
        """Report the beginning or the end of an outage, once each.

        Called when no renewal is in progress, or all have failed.
        """
        change = self._outages.review(monotonic())
        if change is not None:
            self._events.outage(change)


def heard(told: Told) -> Told:
    """Note when a message for a holder came, in case the message has to wait for the lease."""
    return told._replace(heard_at=monotonic()) if isinstance(told, Wanted) else told


class WhenWanted:
    """A callback of a lease that acts when the holder is asked to end, and does nothing when the lease is lost."""

    __slots__ = ("on_wanted",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.on_wanted: Callable[[], object] = action

    def __call__(self) -> None:
        """Do nothing."""


def run_wanted_callbacks(lease: LeaseState) -> None:
    """Notify blocks and events that the holder is to end: the lease's callbacks with a method for it."""
    callbacks = [getattr(callback, "on_wanted", None) for callback in list(lease.callbacks)]
    _run([callback for callback in callbacks if callback is not None], lease)


def run_wanted(action: Callable[[], object], lease: LeaseState) -> None:
    """Call a callback that was added after the holder was asked to end."""
    _run([action], lease)


def run_lost_callbacks(lease: LeaseState) -> None:
    """Call the callbacks of a lost lease, each of them once, also callbacks added meanwhile."""
    _run(lease.callbacks, lease)


def _run(callbacks: list[Callable[[], object]], lease: LeaseState) -> None:
    """Take callbacks out of a list and call them. An exception of a callback is logged, and the others are called.

    The holder and the renewal thread may do this at the same time. An interrupt (Ctrl-C) is raised when all have been called.
    """
    interrupt = None
    while callbacks:
        try:
            callback = callbacks.pop(0)
        except IndexError:  # the other thread has taken the last callback
            break
        try:
            callback()
        except KeyboardInterrupt as error:
            interrupt = error
        except BaseException:  # noqa: BLE001 -- it is a user's, and nothing else is to suffer
            log.callback_failed(lease.request.name)
    if interrupt is not None:
        raise interrupt
