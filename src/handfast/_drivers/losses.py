"""Notify holders that their leases are lost: what the renewers of both drivers have in common."""

from __future__ import annotations

import logging

from handfast._engine.effects import Answer
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState, LeaseTable, Renewal

__all__ = ["LossNotifier", "run_lost_callbacks"]

logger = logging.getLogger("handfast.renewal")


class LossNotifier:
    """Removes lost leases from the table and notifies their holders."""

    def __init__(self, leases: LeaseTable) -> None:
        self._leases = leases

    def lose(self, lease: LeaseState, reason: str) -> None:
        self._leases.lose(lease, reason)
        self.notify_lost(lease)

    def notify_lost(self, lease: LeaseState) -> None:
        """Log the loss and call the callbacks. A lease without callbacks has a holder that does not know yet."""
        logger.log(
            logging.WARNING if lease.callbacks else logging.ERROR,
            "lost the lease of %r with fence %d: %s",
            lease.request.name,
            lease.fence,
            lease.loss,
            extra={"lock": lease.request.name, "reason": lease.loss},
        )
        run_lost_callbacks(lease)

    def settle(self, lease: LeaseState, outcome: Answer | ErrorReply, now: float) -> Renewal:
        """Judge the outcome of a renewal, log a refusal and notify of a loss. Return what is left to do."""
        verdict = self._leases.settle(lease, outcome, now)
        if verdict is Renewal.LOST:
            self.notify_lost(lease)
        elif verdict in (Renewal.RETRY, Renewal.RECONNECT):
            logger.warning(
                "could not renew the lease of %r, retrying: %s",
                lease.request.name,
                outcome,
                extra={"lock": lease.request.name, "reason": str(outcome)},
            )
        return verdict


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
