"""Notify holders that their leases are lost, and operators of outages: what the renewers of both drivers have in common."""

from __future__ import annotations

import logging

from handfast._drivers.clock import monotonic
from handfast._drivers.loggers import LoggerApart
from handfast._engine.effects import Answer
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import EXPIRED, LeaseState, LeaseTable, Renewal
from handfast._protocol.outage import OutageBegins, OutageWatch

__all__ = ["LossNotifier", "counted", "run_lost_callbacks"]

logger = LoggerApart("handfast.renewal")


class LossNotifier:
    """Removes lost leases from the table and notifies their holders."""

    def __init__(self, leases: LeaseTable) -> None:
        self._leases = leases
        self._outages = OutageWatch(leases)

    def lose(self, lease: LeaseState, reason: str) -> None:
        self._leases.lose(lease, reason, monotonic())
        self.notify_lost(lease)

    def notify_lost(self, lease: LeaseState) -> None:
        """Log the loss and call the callbacks. A lease without callbacks has a holder that does not know yet.

        A lease without renewal that runs out ends as planned.
        """
        level = logging.WARNING if lease.callbacks else logging.ERROR
        logger.log(
            logging.DEBUG if lease.loss == EXPIRED and not lease.is_renewed else level,
            "lost the lease of %r with fence %d: %s",
            lease.request.name,
            lease.fence,
            lease.loss,
            extra={"lock": lease.request.name, "fence": lease.fence, "reason": lease.loss},
        )
        run_lost_callbacks(lease)

    def settle(self, lease: LeaseState, outcome: Answer | ErrorReply, now: float) -> Renewal:
        """Judge the outcome of a renewal and notify of a loss. Return what is left to do."""
        verdict = self._leases.settle(lease, outcome, now)
        if verdict is Renewal.LOST:
            self.notify_lost(lease)
        elif verdict in (Renewal.RETRY, Renewal.RECONNECT):
            logger.debug(
                "could not renew the lease of %r, retrying: %s",
                lease.request.name,
                outcome,
                extra={"lock": lease.request.name, "reason": str(outcome)},
            )
        return verdict

    def note_failure(self, error: BaseException) -> None:
        """Note why the renewals that are in progress failed."""
        logger.debug("could not reach the server to renew leases: %s", error)
        self._leases.note_failure(error)

    def review(self) -> None:
        """Log the beginning or the end of an outage, once each. Called when no renewal is in progress, or all have failed."""
        change = self._outages.review(monotonic())
        if isinstance(change, OutageBegins):
            name = change.first.request.name
            logger.warning(
                "cannot renew %s (%s); the first, of %r, ends in %.1f s",
                counted(change.leases),
                change.reason,
                name,
                change.ends_in,
                extra={"lock": name, "reason": change.reason, "leases": change.leases, "ends_in": change.ends_in},
            )
        elif change is not None:
            logger.info(
                "renewing %s again after %.1f s",
                counted(change.leases),
                change.lasted,
                extra={"leases": change.leases, "lasted": change.lasted},
            )


def counted(leases: int) -> str:
    """Return a number of leases in words."""
    return f"{leases} lease{'' if leases == 1 else 's'}"


def run_lost_callbacks(lease: LeaseState) -> None:
    """Call the callbacks of a lost lease, each of them once. An interrupt (Ctrl-C) is raised when all have been called."""
    interrupt = None
    while lease.callbacks:
        try:
            lease.callbacks.pop(0)()
        except KeyboardInterrupt as error:
            interrupt = error
        except BaseException:
            logger.exception(
                "a callback for the lost lease of %r failed", lease.request.name, extra={"lock": lease.request.name}
            )
    if interrupt is not None:
        raise interrupt
