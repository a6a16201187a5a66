"""Make events, and call the functions that listen to them.

The end of a request or of a lease is reported in the caller's thread or task, after the fact: a trace needs the
caller's context, and a slow function delays only this caller. Reports of renewers go to a thread of each function: no
function keeps a lease from being renewed, nor another function from getting events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from handfast import events
from handfast._drivers import log
from handfast._drivers.background import Background
from handfast._drivers.clock import monotonic, unix_time
from handfast._engine.limits import REQUESTS
from handfast._engine.messages import Wanted
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.lease import LeaseState
from handfast._protocol.limiting import LimitAttempt
from handfast._protocol.loss import Loss
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

__all__ = ["Dispatcher", "Listener"]

MAX_WAITING = 10_000
"""How many events wait for a function that hangs. Further ones are dropped, and the first of them is logged."""

WARN_EVERY_S = 60.0
"""How often, in seconds, it is logged at most that a function failed."""


class Listener:
    """A function, and the kinds of events with which it is called."""

    __slots__ = ("_apart", "_callback", "_is_dropping", "_threads", "_types", "_warn_at", "is_stopped")

    def __init__(self, callback: Callable[[Any], object], types: tuple[type[events.Event], ...]) -> None:
        self._callback = callback
        self._types = types
        self._threads: set[int] = set()
        """The threads that are in the function now: it is not called for what it does itself."""
        self._warn_at = 0.0
        self._apart = Background("handfast-events", daemon=True)
        """A thread of this function alone: where it hangs, other functions have their events. A daemon: it does not keep
        the process from its end."""
        self._is_dropping = False
        """Whether too many events wait, which is logged once: until all of them are done."""
        self.is_stopped: bool = False

    def take(self, event: events.Event) -> None:
        """Call the function. An exception of the function is logged."""
        if self.is_stopped or not isinstance(event, self._types) or (thread := threading.get_ident()) in self._threads:
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

    def take_apart(self, event: events.Event) -> None:
        """Have the function called in its own thread, after the events waiting there."""
        if not isinstance(event, self._types):
            return
        waiting = len(self._apart)
        if waiting == 0:
            self._is_dropping = False
        if waiting >= MAX_WAITING:
            if not self._is_dropping:
                self._is_dropping = True
                log.listener_hangs(type(event).__name__, waiting)
            return
        with suppress(RuntimeError):  # the interpreter is ending
            self._apart.call(partial(self.take, event))


class Dispatcher:
    """Calls the functions of one client. ``listeners`` may change at any moment."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: list[Listener]) -> None:
        self._listeners = listeners

    # --- in the caller's thread or task

    def queued(self, attempt: BaseAttempt) -> None:
        """Report a waiting request."""
        self._dispatch(events.Queued(**_of(attempt.request), position=attempt.position or 0))

    def acquired(self, lease: LeaseState, attempt: BaseAttempt | None) -> None:
        """Report a new lease, which ends the attempt."""
        fields, position = _of(lease.request), None
        if attempt is not None:
            attempt.claim_end()
            position = attempt.position
        self._dispatch(events.Acquired(**fields, fence=lease.fence, waited=lease.waited, position=position))

    def refused(self, attempt: BaseAttempt, outcome: events.Outcome) -> None:
        """Report a request that ended without a lease."""
        if attempt.claim_end():
            self._refuse(attempt, outcome)

    def undone(self, attempt: BaseAttempt, stopped: Sequence[LeaseState], error: BaseException | None) -> None:
        """Report the end of an attempt which gave the caller nothing: of leases that were stopped, and the refusal.

        Of an attempt with several parts, the first part that has not ended was refused.
        """
        for lease in stopped:
            self.ended(lease)
        refused = None if error is None else next((part for part in attempt.parts if part.claim_end()), None)
        if error is not None and refused is not None:
            self._refuse(refused, _outcome(error))

    def _refuse(self, attempt: BaseAttempt, outcome: events.Outcome) -> None:
        fields, waited = _of(attempt.request), monotonic() - attempt.asked_at
        self._dispatch(events.Refused(**fields, outcome=outcome, waited=waited, position=attempt.position))

    def found(self, attempt: BaseAttempt, outcome: str) -> None:
        """Report a key of `once` with a record."""
        attempt.claim_end()
        fields, waited = _of(attempt.request), monotonic() - attempt.asked_at
        self._dispatch(events.Found(**fields, outcome=outcome, waited=waited, position=attempt.position))

    def admitted(self, attempt: LimitAttempt, *, exceeded: bool) -> None:
        """Report a call admitted by a limiter."""
        attempt.claim_end()
        fields, waited = _of(attempt.request), monotonic() - attempt.asked_at
        asked = attempt.request.cost
        cost, costs = (asked, {}) if isinstance(asked, int) else (asked.get(REQUESTS, 1), asked)
        self._dispatch(events.Admitted(**fields, cost=cost, costs=costs, waited=waited, exceeded=exceeded))

    def operated(self, **fields: Any) -> None:
        """Report an act of an operator, with the fields of `events.Operated`."""
        self._dispatch(events.Operated(at=unix_time(), **fields))

    def ended(self, lease: LeaseState) -> None:
        """Report the release of a lease by the holder, whether or not the server has confirmed it."""
        if lease.claim_end():
            self._dispatch(_end_of(lease, lease.loss))

    # --- apart

    def lost(self, lease: LeaseState, loss: Loss | None) -> None:
        """Report a loss."""
        if lease.claim_end():
            self._dispatch_apart(_end_of(lease, loss))

    def wanted(self, lease: LeaseState, told: Wanted) -> None:
        """Report a request to a holder to end."""
        fields = {**_of(lease.request), "fence": lease.fence, "by": told.by}
        self._dispatch_apart(events.Wanted(**fields, reason=told.reason, grace=told.grace))

    def renewal_failed(self, reason: object) -> None:
        """Report a renewal that was refused or got no answer."""
        self._dispatch_apart(events.RenewalFailed(at=unix_time(), reason=str(reason)))

    def outage(self, change: OutageBegins | OutageEnds) -> None:
        """Report the beginning or the end of an outage."""
        now = unix_time()
        if isinstance(change, OutageBegins):
            leases, reason, _, ends_in = change
            self._dispatch_apart(events.OutageBegan(at=now, leases=leases, ends_in=ends_in, reason=reason))
        else:
            self._dispatch_apart(events.OutageEnded(at=now, leases=change.leases, lasted=change.lasted))

    def connected(self, server: str) -> None:
        """Report a new connection."""
        self._dispatch_apart(events.Connected(at=unix_time(), server=server))

    def _dispatch(self, event: events.Event) -> None:
        for listener in [*self._listeners]:
            listener.take(event)

    def _dispatch_apart(self, event: events.Event) -> None:
        for listener in [*self._listeners]:
            listener.take_apart(event)


def _of(request: Any) -> dict[str, Any]:
    """Return the fields common to all events of a name."""
    return {"at": unix_time(), "kind": request.kind, "name": request.name}


def _end_of(lease: LeaseState, loss: Loss | None) -> events.Event:
    fields = {**_of(lease.request), "fence": lease.fence, "held_for": lease.held_for(monotonic())}
    return events.Released(**fields) if loss is None else events.Lost(**fields, cause=loss.cause, reason=loss.text)


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
