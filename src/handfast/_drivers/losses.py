"""Telling holders that their leases are lost: what the keepers of both colours have in common."""

from __future__ import annotations

import logging

from handfast._protocol.lease import LeaseState, LeaseTable

__all__ = ["LossNotifier", "tell"]

logger = logging.getLogger("handfast")


class LossNotifier:
    """Enters losses in the ledger and calls the callbacks."""

    def __init__(self, ledger: LeaseTable) -> None:
        self._ledger = ledger

    def lose(self, holding: LeaseState, reason: str) -> None:
        """The lease is gone, and its holder is to know."""
        self._ledger.lose(holding, reason)
        self.announce(holding)

    def revoked(self, token: bytes, reason: str) -> None:
        """The server rang: an operator took this lease away."""
        holding = self._ledger.find(token)
        if holding is not None:
            self.lose(holding, reason)

    def announce(self, holding: LeaseState) -> None:
        """Let everybody know of a loss."""
        logger.warning("lost the lease of %r with fence %d: %s", holding.permits.name, holding.fence, holding.loss)
        tell(holding)


def tell(holding: LeaseState) -> None:
    """Call the callbacks of a lease that was lost, each of them once."""
    while holding.callbacks:
        try:
            holding.callbacks.pop(0)()
        except KeyboardInterrupt:
            raise
        except BaseException:
            logger.exception("a callback for the lost lease of %r failed", holding.permits.name)
