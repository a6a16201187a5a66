"""The records that clients log, with their words.

Records about renewals, cleanups and Sentinels are handled on a separate thread, where a slow or hanging handler keeps
nothing from being renewed: a handler is a user's code, and may post a record to a web service, or wait for a lock held
by another thread.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial

from handfast._drivers.background import Background
from handfast._drivers.clock import monotonic
from handfast._engine.messages import Wanted
from handfast._protocol.lease import LeaseState
from handfast._protocol.loss import PLANNED
from handfast._protocol.outage import OutageBegins, OutageEnds

__all__ = [
    "LoggerApart",
    "acquired",
    "blocked_loop",
    "callback_failed",
    "cleanup_given_up",
    "dropped",
    "is_logged",
    "lease_log",
    "listener_failed",
    "listener_hangs",
    "loop_back",
    "loop_blocked",
    "lost",
    "new_primary",
    "outage",
    "own_wait",
    "pause_cut",
    "refresh_failed",
    "released",
    "renewal_failed",
    "renewal_refused",
    "sentinels_silent",
    "settles_later",
    "stand_in_failed",
    "thread_failed",
    "unfinished_cleanup",
    "unheard",
    "unreadable",
    "unreleased",
    "unsettled",
]

lease_log = logging.getLogger("handfast.lease")

is_logged: Callable[[int, bool], bool] = getattr(lease_log, "_cache", {}).get
"""Return what the logger has found out about a level, else the second argument. Drivers ask it before each record of a lease,
with True: without DEBUG that is all that logging costs a lock. The cache is private to `logging`; where it says nothing, the
logger itself is asked."""

_handling = Background("handfast-records", daemon=False)
"""For all of them, so that records keep their order. No daemon: the last record of a program is often the one that says
why it ends."""


class LoggerApart(logging.Logger):
    """Makes records where it is called, with the time and thread of the call; the logger of its name handles them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._logger = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 -- logging's
        return self._logger.isEnabledFor(level)

    def handle(self, record: logging.LogRecord) -> None:
        if sys.is_finalizing():  # Python 3.11 would wait forever for the thread that it does not start any more
            self._logger.handle(record)
            return
        try:
            _handling.call(partial(self._logger.handle, record))
        except RuntimeError:  # the interpreter is ending
            self._logger.handle(record)


_budget = logging.getLogger("handfast.budget")
_cleanup = logging.getLogger("handfast.cleanup")
_debounce = logging.getLogger("handfast.debounce")
_limiter = logging.getLogger("handfast.limiter")
_names = logging.getLogger("handfast.names")
_once = logging.getLogger("handfast.once")
_partition = logging.getLogger("handfast.partition")
_budget_apart, _cleanup_apart, _lease_apart, _renewal, _sentinel = (
    LoggerApart(f"handfast.{name}") for name in ("budget", "cleanup", "lease", "renewal", "sentinel")
)


# --- leases


def unreleased(name: str) -> None:
    """Log the close of a client before the server confirmed a release."""
    _cleanup.warning(
        "could not release the lease of %r before its client was closed; it may stay held until its ttl ends",
        name,
        extra={"lock": name, "reason": "the server did not confirm it in time"},
    )


def pause_cut(name: str, asked: float, at_most: float) -> None:
    _limiter.warning("the limiter %r was to pause for %.6g s, and does for %.6g s: at_most", name, asked, at_most)


def settles_later(name: str, amount: str, error: Exception) -> None:
    """Log a settlement of a budget that goes on in the background."""
    text = "the budget %r is settled with %s as soon as the server answers: %s"
    _budget.warning(text, name, amount, error, extra={"lock": name, "amount": amount, "reason": str(error)})


def unsettled(name: str, amount: str) -> None:
    """Log a settlement of a budget that was given up."""
    text = "the budget %r could not be settled with %s: the reserved amount counts, or with a ttl nothing"
    _budget_apart.error(text, name, amount, extra={"lock": name, "amount": amount})


def unreadable(names: Iterable[tuple[str, str]]) -> None:
    """Log how many names were left out because their keys can't be read."""
    found = sorted(names)
    kind, name = found[0]
    text = "left out %d that can't be read, such as the %s %r: its keys are not as this version writes them"
    _names.warning(text, len(found), kind, name, extra={"lock": name, "reason": "its keys can't be read"})


def refresh_failed(name: str, error: Exception, pause_s: float) -> None:
    _once.warning(
        "%r could not be made anew, and its old result goes on to count; the next try is not before %.3g s: %s",
        name,
        pause_s,
        type(error).__name__,
        exc_info=error,
        extra={"lock": name, "reason": type(error).__name__},
    )


def loop_failed(
    kind: str, name: str, function: str, error: BaseException, pause_s: float, *, of_function: bool
) -> None:
    """Log a failure after which a loop goes on: an error of the loop's function, or of the server."""
    logger, reason = logging.getLogger(f"handfast.{kind}"), type(error).__name__
    if of_function:
        text = "%s failed, and is called again in %.3g s: %s"
        logger.error(text, function, pause_s, reason, exc_info=error, extra={"lock": name, "reason": reason})
    else:
        text = "the %s %r could not go on, and tries again in %.3g s: %s"
        logger.warning(text, kind, name, pause_s, error or reason, extra={"lock": name, "reason": str(error) or reason})


def items_late(name: str, seconds: float) -> None:
    _partition.warning(
        "the function for the items of %r has not returned for %.3g s; the items stay as they were",
        name,
        seconds,
        extra={"lock": name, "reason": "the function hangs"},
    )


def serve_hangs(name: str, item: str, seconds: float) -> None:
    _partition.error(
        "the function that serves %r of %r has not ended %.3g s after its lease was lost; the item is served again beside it",
        item,
        name,
        seconds,
        extra={"lock": name, "reason": "the function hangs"},
    )


def late_batch(name: str) -> None:
    _debounce.warning(
        "the items of a run of %r took longer than its within=: other runs may have done them as well",
        name,
        extra={"lock": name},
    )


def unheard(address: str) -> None:
    lease_log.warning(
        "no messages of %s reach this client, which a proxy may keep back: its waiters ask every 0.05 s to 1 s instead; connect to the "
        "server directly",
        address,
        extra={"server": address, "reason": "the message of the probe did not come back"},
    )


def blocked_loop(name: str) -> None:
    lease_log.warning(
        "a call of the sync API waits for %r in a thread whose event loop runs, and no task of it goes on meanwhile; use AsyncHandfast in "
        "coroutines, or call it with asyncio.to_thread()",
        name,
        extra={"lock": name, "reason": "it blocks the event loop"},
    )


def dropped(what: str, lease: LeaseState) -> None:
    """Log a lease dropped without a release. May be called at any point of any thread, by the garbage collector."""
    _lease_apart.warning(
        "%s was dropped without a release: it is not renewed any more, and ends in %.3g s; keep it, or enter it with a with statement",
        what,
        max(0.0, lease.deadline - monotonic()),
        extra={"lock": lease.request.name, "fence": lease.fence, "reason": "it was dropped"},
    )


def own_wait(lease: LeaseState) -> None:
    name, held_for = lease.request.name, lease.held_for(monotonic())
    lease_log.warning(
        "a call waits for %r, which this client itself has held for %.0f s; if the holder waits for that call, neither goes on",
        name,
        held_for,
        extra={"lock": name, "fence": lease.fence, "held_for": held_for},
    )


def acquired(lease: LeaseState) -> None:
    name, fence, waited = lease.request.name, lease.fence, lease.waited
    fields = {"lock": name, "fence": fence, "waited": waited}
    lease_log.debug("acquired %r with fence %d after %.3f s", name, fence, waited, extra=fields)


def released(lease: LeaseState) -> None:
    name, fence, held_for = lease.request.name, lease.fence, lease.held_for(monotonic())
    fields = {"lock": name, "fence": fence, "held_for": held_for}
    lease_log.debug("released %r with fence %d after %.3f s", name, fence, held_for, extra=fields)


def unfinished_cleanup(name: str, reason: object) -> None:
    """Log an undo that outlasts the caller, whose lock may stay held or queued for some seconds."""
    _cleanup.warning(
        "the cleanup of %r goes on in the background: %s", name, reason, extra={"lock": name, "reason": str(reason)}
    )


def cleanup_given_up(error: object) -> None:
    _cleanup_apart.debug("gave up a background cleanup: %s", error)


# --- renewals


def lost(lease: LeaseState) -> None:
    """Log a loss. If the lease has no callbacks, the holder does not know of the loss yet.

    A lease without renewal that runs out ends as planned.
    """
    level = logging.WARNING if lease.callbacks else logging.ERROR
    _renewal.log(
        logging.DEBUG if lease.loss is PLANNED else level,
        "lost the lease of %r with fence %d: %s",
        lease.request.name,
        lease.fence,
        lease.loss_text,
        extra={"lock": lease.request.name, "fence": lease.fence, "reason": lease.loss_text},
    )


def wanted(lease: LeaseState, told: Wanted) -> None:
    fields = {"lock": lease.request.name, "fence": lease.fence, "reason": told.reason}
    _renewal.info(
        "%s asks the holder of %r with fence %d to end within %.3g s: %s",
        told.by,
        lease.request.name,
        lease.fence,
        told.grace,
        told.reason,
        extra=fields,
    )


def listener_failed(event: str, error: Exception) -> None:
    _lease_apart.error(
        "a function that was given to on() failed with an event, %s", event, exc_info=error, extra={"event": event}
    )


def listener_hangs(event: str, waiting: int) -> None:
    """Log that events of the background are dropped: the function has not returned. The caller logs it only once."""
    _lease_apart.error(
        "a function that was given to on() hangs: %d events wait for it, and further ones are dropped, as this %s",
        waiting,
        event,
        extra={"event": event, "reason": "the function hangs"},
    )


def callback_failed(name: str) -> None:
    _renewal.exception("a callback for the lease of %r failed", name, extra={"lock": name})


def renewal_refused(name: str, outcome: object) -> None:
    fields = {"lock": name, "reason": str(outcome)}
    _renewal.debug("could not renew the lease of %r, retrying: %s", name, outcome, extra=fields)


def renewal_failed(error: object) -> None:
    _renewal.debug("could not reach the server to renew leases: %s", error)


def outage(change: OutageBegins | OutageEnds) -> None:
    """Log the beginning or the end of an outage."""
    if isinstance(change, OutageBegins):
        name = change.first.request.name
        _renewal.warning(
            "cannot renew %s (%s); the first, of %r, ends in %.1f s",
            _counted(change.leases),
            change.reason,
            name,
            change.ends_in,
            extra={"lock": name, "reason": change.reason, "leases": change.leases, "ends_in": change.ends_in},
        )
    else:
        fields = {"leases": change.leases, "lasted": change.lasted}
        _renewal.info("renewing %s again after %.1f s", _counted(change.leases), change.lasted, extra=fields)


def thread_failed(pause: float) -> None:
    _renewal.exception("unexpected error in the lease renewal thread; retrying in %g s", pause)


def loop_blocked(leases: int) -> None:
    text = "the event loop is blocked; a thread renews %s until it goes on"
    _renewal.warning(text, _counted(leases), extra={"leases": leases})


def loop_back(lasted: float) -> None:
    _renewal.info("the event loop goes on after %.1f s", lasted, extra={"lasted": lasted})


def stand_in_failed(pause: float) -> None:
    _renewal.exception("could not renew the leases of an event loop that is blocked; retrying in %g s", pause)


# --- Sentinels


def new_primary(service: str, address: str) -> None:
    _sentinel.info("%r has a new primary, %s: connecting to it", service, address)


def sentinels_silent(service: str, failures: Iterable[str]) -> None:
    _sentinel.warning(
        "no Sentinel of %r tells of a new primary (%s): after a planned failover, what is acquired from the old "
        "one may be acquired from the new one, too, for as long as the old one takes writes",
        service,
        "; ".join(failures),
    )


def _counted(leases: int) -> str:
    return f"{leases} lease{'' if leases == 1 else 's'}"
