"""Who took a lease, by what the name remembers: of a lease that is gone, and whose holder may have missed the message.

A name remembers the last action of an operator. The lease was taken by it if it is later than the grant: a fence is the
server's time of its grant.
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
    """The questions about a lease: one for each of its names. ``outcome`` is the reply to its renewal."""

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
        """Take the reply to it. Return why the lease was taken away; None if that is not known of this name."""
        self._parts.pop(0)
        action = None if isinstance(outcome, ErrorReply) else read_action(outcome.fields[NOTED])
        if action is None or action.what not in LOSSES or action.at_us < self.lease.fence:
            return None
        return LOSSES[action.what](action.why)
