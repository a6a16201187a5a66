"""Make events, and call the functions that listen to them.

What ends a request or a lease of a caller is reported in the caller's thread or task, after the fact: a trace needs its
context, and a function that is slow delays its own caller only. What renewers find out is reported on a thread of its own,
like their log records: no function keeps a lease from being renewed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from handfast import events
from handfast._drivers import log
from handfast._drivers.background import Background
from handfast._drivers.clock import monotonic, unix_time
from handfast._engine.messages import Wanted
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.lease import CLOSED, LeaseState
from handfast._protocol.limiting import LimitAttempt
from handfast._protocol.outage import OutageBegins, OutageEnds
from handfast.errors import (
    AcquireCancelled,
    AcquireTimeout,
    AlreadyRunning,
    QueueFull,
    RateLimited,
    Superseded,
    WaitTimeout,
)

__all__ = ["Listener", "Teller"]

MAX_WAITING = 10_000
"""How many events wait for a function that hangs. Further ones are dropped."""

WARN_EVERY_S = 60.0
"""How often, in seconds, it is logged at most that a function failed."""

_apart = Background("handfast-events", daemon=True)
"""For the functions of all clients. A daemon: a function that hangs does not keep the process from its end."""


class Listener:
    """A function, and the kinds of events that it is called with."""

    __slots__ = ("_callback", "_threads", "_types", "_warn_at")

    def __init__(self, callback: Callable[[Any], object], types: tuple[type[events.Event], ...]) -> None:
        self._callback = callback
        self._types = types
        self._threads: set[int] = set()
        """The threads that are in the function now: it is not called for what it does itself."""
        self._warn_at = 0.0

    def take(self, event: events.Event) -> None:
        """Call the function. What it raises is logged."""
        if not isinstance(event, self._types) or (thread := threading.get_ident()) in self._threads:
            return
        self._threads.add(thread)
        try:
            self._callback(event)
        except Exception as error:  # noqa: BLE001 -- it is the user's, and the caller is to go on
            now = monotonic()
            if now >= self._warn_at:
                self._warn_at = now + WARN_EVERY_S
                log.listener_failed(type(event).__name__, error)
        finally:
            self._threads.discard(thread)


class Teller:
    """Tells the functions of one client what happens."""

    __slots__ = ("listeners",)

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners: tuple[Listener, ...] = listeners

    # --- in the caller's thread or task

    def queued(self, attempt: BaseAttempt) -> None:
        """Tell that a request waits."""
        self._tell(events.Queued(**_of(attempt.request), position=attempt.position or 0))

    def acquired(self, lease: LeaseState, position: int | None) -> None:
        """Tell of a new lease."""
        fields = _of(lease.request)
        self._tell(events.Acquired(**fields, fence=lease.fence, waited=lease.waited, position=position))

    def refused(self, attempt: BaseAttempt, outcome: events.Outcome | BaseException) -> None:
        """Tell that a request ended without a lease."""
        if not attempt.claim_end():
            return
        if isinstance(outcome, BaseException):
            outcome = _outcome(outcome)
        fields, waited = _of(attempt.request), monotonic() - attempt.asked_at
        self._tell(events.Refused(**fields, outcome=outcome, waited=waited, position=attempt.position))

    def undone(self, attempt: BaseAttempt, stopped: Sequence[LeaseState], error: BaseException | None) -> None:
        """Tell how an attempt ended that gave nothing: the ends of the leases that did not reach the caller, and the refusal."""
        for lease in stopped:
            self.ended(lease)
        missing = [part for part in attempt.parts if part.token not in {lease.token for lease in stopped}]
        if error is not None and missing:
            self.refused(missing[0], error)

    def found(self, attempt: BaseAttempt, outcome: str) -> None:
        """Tell that a key of `once` had a record."""
        attempt.claim_end()
        fields, waited = _of(attempt.request), monotonic() - attempt.asked_at
        self._tell(events.Found(**fields, outcome=outcome, waited=waited))

    def admitted(self, attempt: LimitAttempt, *, exceeded: bool) -> None:
        """Tell that a limiter has admitted a call."""
        fields, waited = _of(attempt.request), monotonic() - attempt.asked_at
        self._tell(events.Admitted(**fields, cost=attempt.request.cost, waited=waited, exceeded=exceeded))

    def ended(self, lease: LeaseState) -> None:
        """Tell that a holder let its lease go, whether or not the server has confirmed that."""
        if lease.claim_end():
            self._tell(_end_of(lease))

    # --- apart

    def lost(self, lease: LeaseState, cause: events.LossCause, reason: str) -> None:
        """Tell of a loss."""
        if lease.claim_end():
            self._tell_apart(_loss_of(lease, cause, reason))

    def closed(self, lease: LeaseState) -> None:
        """Tell that the client of a holder was closed."""
        self.lost(lease, "closed", CLOSED)

    def wanted(self, lease: LeaseState, told: Wanted) -> None:
        """Tell that a holder is asked to end."""
        fields = {**_of(lease.request), "fence": lease.fence, "by": told.by}
        self._tell_apart(events.Wanted(**fields, reason=told.reason, grace=told.grace))

    def renewal_failed(self, reason: object) -> None:
        """Tell that a renewal was refused or got no answer."""
        self._tell_apart(events.RenewalFailed(at=unix_time(), reason=str(reason)))

    def outage(self, change: OutageBegins | OutageEnds) -> None:
        """Tell of the beginning or the end of an outage."""
        now = unix_time()
        if isinstance(change, OutageBegins):
            leases, reason, _, ends_in = change
            self._tell_apart(events.OutageBegan(at=now, leases=leases, ends_in=ends_in, reason=reason))
        else:
            self._tell_apart(events.OutageEnded(at=now, leases=change.leases, lasted=change.lasted))

    def connected(self, server: str) -> None:
        """Tell of a new connection."""
        self._tell_apart(events.Connected(at=unix_time(), server=server))

    def _tell(self, event: events.Event) -> None:
        for listener in self.listeners:
            listener.take(event)

    def _tell_apart(self, event: events.Event) -> None:
        if len(_apart) < MAX_WAITING:
            try:
                _apart.call(partial(self._tell, event))
            except RuntimeError:  # the interpreter is ending
                return


def _of(request: Any) -> dict[str, Any]:
    """Return the fields that every event of a name has."""
    return {"at": unix_time(), "kind": request.kind, "name": request.name}


def _end_of(lease: LeaseState) -> events.Event:
    if lease.loss is not None:
        return _loss_of(lease, lease.loss_cause, lease.loss)
    return events.Released(**_of(lease.request), fence=lease.fence, held_for=lease.held_for(monotonic()))


def _loss_of(lease: LeaseState, cause: events.LossCause, reason: str) -> events.Event:
    fields = {**_of(lease.request), "fence": lease.fence, "held_for": lease.held_for(monotonic())}
    return events.Lost(**fields, cause=cause, reason=reason)


def _outcome(error: BaseException) -> events.Outcome:
    """Return in one word why a request got nothing."""
    if isinstance(error, AcquireTimeout | RateLimited | WaitTimeout):
        return "timeout" if error.timeout > 0 else "busy"
    if isinstance(error, AlreadyRunning):
        return "busy"
    if isinstance(error, QueueFull):
        return "full"
    if isinstance(error, Superseded):
        return "superseded"
    was_cancelled = isinstance(error, AcquireCancelled) or not isinstance(error, Exception)
    return "cancelled" if was_cancelled else "error"
