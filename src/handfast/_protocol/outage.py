"""Outages: when the leases of a client cannot be renewed, and when they are renewed again.

An operator is to hear once of each, however many leases there are and however many renewals fail. For a renewer an
outage begins when a renewal is refused or gets no answer. A connection that breaks and is opened again at once is none.
"""

from __future__ import annotations

from typing import NamedTuple

from handfast._protocol.lease import LeaseState, LeaseTable

__all__ = ["OutageBegins", "OutageEnds", "OutageWatch"]


class OutageBegins(NamedTuple):
    """That many leases cannot be renewed, for this reason; ``first`` ends in so many seconds."""

    leases: int
    reason: str
    first: LeaseState
    ends_in: float


class OutageEnds(NamedTuple):
    """That many leases are renewed again, after so many seconds."""

    leases: int
    lasted: float


class OutageWatch:
    """Finds the beginning and the end of each outage."""

    def __init__(self, leases: LeaseTable) -> None:
        self._leases = leases
        self._began_at: float | None = None

    def review(self, now: float) -> OutageBegins | OutageEnds | None:
        """Return the change. To be called when no renewal is in progress, or when those in progress failed.

        An outage whose leases are all gone, lost or released, has no end to be reported.
        """
        leases = self._leases.all()
        # A lease that is not renewed any more ends as planned. Its former trouble is no outage.
        failing = [lease for lease in leases if lease.trouble is not None and lease.is_renewed]
        # The lease with the nearest deadline tells how long the operator has.
        if failing and self._began_at is None:
            self._began_at = now
            first = min(failing, key=lambda lease: lease.deadline)
            return OutageBegins(len(failing), first.trouble or "", first, first.deadline - now)
        if not failing and self._began_at is not None:
            # The state is reset even where nothing is reported: the next outage is a new one.
            lasted, self._began_at = now - self._began_at, None
            renewed = sum(lease.is_renewed for lease in leases)
            return OutageEnds(renewed, lasted) if renewed else None
        return None
