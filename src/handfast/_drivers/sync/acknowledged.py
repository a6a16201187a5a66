"""The renewals that wait for replicas: the renewal thread sends them on a separate connection.

While a server waits for replicas, it serves nothing else of the connection. So there is a single barrier at a time:
renewals that become due meanwhile leave together, in front of the next barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from handfast._drivers.clock import monotonic
from handfast._drivers.sync.reopening import Reopening
from handfast._drivers.sync.session import Session
from handfast._engine.effects import Answer, Call
from handfast._engine.exchange import Called
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState

__all__ = ["AcknowledgedRenewals"]


class AcknowledgedRenewals:
    """Sends renewals on a session of their own, and calls ``settle`` with each lease and the outcome."""

    def __init__(self, link: Reopening, settle: Callable[[LeaseState, Answer | ErrorReply], object]) -> None:
        self.link = link
        self._settle = settle
        self._due: dict[LeaseState, Call] = {}
        self._sent: dict[LeaseState, Called] = {}
        self.sends_sources = False
        """Whether the next renewals are sent with the source of their script, which the server does not know."""
        self.silent_at = inf
        """When the server counts as silent unless all replies have come; inf if none is due."""

    def __contains__(self, lease: LeaseState) -> bool:
        return lease in self._due or lease in self._sent

    def __bool__(self) -> bool:
        return bool(self._due or self._sent)

    def add(self, leases: list[LeaseState]) -> None:
        """Renew these as soon as the replies to those before them have come."""
        self._due |= {lease: lease.renewal for lease in leases}

    @property
    def session(self) -> Session:
        """The session of now."""
        return self.link.session

    def open(self, within: float, wait: float) -> None:
        """Open the session if a renewal is due, and wait ``wait`` seconds for it. Raises the errors of the network."""
        if not self.session.is_open:
            self.forget()
            if self._due:
                self.link.open(within, wait)

    def send(self, within: float, is_renewed: Callable[[LeaseState], bool]) -> None:
        """Send the due renewals of leases still renewed, unless replies are due. Raises the errors of the network."""
        if self._sent or not self.session.is_open:
            return
        due, self._due = {lease: call for lease, call in self._due.items() if is_renewed(lease)}, {}
        if due:
            sources, self.sends_sources = self.sends_sources, False
            self.silent_at = monotonic() + within
            sent = self.session.send([*due.values()], sources=sources, within=within, together=True)
            self._sent = dict(zip(due, sent, strict=True))

    def listen(self) -> None:
        """Take the replies if they have arrived. They are delivered together."""
        self.session.listen()
        outcomes = {lease: called.outcome for lease, called in self._sent.items() if called.outcome is not None}
        if outcomes:
            self.forget()
        for lease, outcome in outcomes.items():
            self._settle(lease, outcome)

    def forget(self) -> None:
        """Expect no replies any more: they have come, or the connection is gone."""
        self._sent, self.silent_at = {}, inf

    def close(self) -> None:
        """Close the connection, and forget the expected replies. The table has the renewals sent again."""
        self.link.close()
        self.forget()
        self._due = {}
