"""Who took a lease, by the record of the name: for a lost lease whose holder may have missed the message.

A name remembers the last action of an operator. This action took the lease if it is later than the grant: a fence is
the server's time of the grant.
"""

from __future__ import annotations

from handfast._engine.effects import Answer, Call
from handfast._engine.records import read_action
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState
from handfast._protocol.loss import Loss, preempted, revoked

__all__ = ["Inquiry"]

LOSSES = {"force_release": revoked, "preempt": preempted}
"""How the reason of an action becomes a loss, by the actions that take leases away."""

NOTED = 9
"""The place of the last action in the reply of ``permit_inspect``."""


class Inquiry:
    """The questions about a lease, one for each name. ``outcome`` is the reply to the lease's renewal."""

    def __init__(self, lease: LeaseState, outcome: Answer | ErrorReply) -> None:
        self.lease = lease
        self.outcome = outcome
        self._parts = [*lease.request.parts]

    @property
    def goes_on(self) -> bool:
        """Whether there is another question."""
        return bool(self._parts)

    @property
    def call(self) -> Call:
        """The next question."""
        return self._parts[0].inspect(1)

    def loss(self, outcome: Answer | ErrorReply) -> Loss | None:
        """Take the reply to the call. Return why the lease was taken away; None if the name does not know."""
        self._parts.pop(0)
        action = None if isinstance(outcome, ErrorReply) else read_action(outcome.fields[NOTED])
        if action is None or action.what not in LOSSES or action.at_us < self.lease.fence:
            return None
        return LOSSES[action.what](action.why)
