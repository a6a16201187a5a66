"""A lease that changes hands: its holder detaches it, and another client adopts it and renews it from then on."""

from __future__ import annotations

import contextlib
import re
from typing import Any, NamedTuple, Self

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Steps
from handfast._protocol.acquire import Grant, renewed
from handfast._protocol.lease import LeaseState
from handfast.errors import LeaseLost, ServerRefused

__all__ = ["DetachedLease", "adopt"]

TEXT = re.compile(
    r"(lock|semaphore|rwlock|election)\.([0-9a-f]{32})\.([0-9]{1,16})\.([0-9]{1,10})\.([01])(?:\.([0-9]{1,11}))?"
)

NOT_THERE = "the server has no lease of this name with this token: it has ended, or the token is of another name"


class DetachedLease(NamedTuple):
    """The facts that a client needs to renew and to release a lease, besides its name."""

    kind: str
    token: bytes
    fence: int
    weight: int
    copies: bool
    """Whether a copy of its acquire may still be on its way to the server."""
    at_least_ms: int = 0
    """For how long the name stays taken since its grant: it belongs to the grant, and not to the client that releases it."""

    @classmethod
    def of(cls, lease: LeaseState, request: PermitRequest) -> Self:
        """Return the facts about a lease acquired with this request."""
        return cls(request.place.kind, lease.token, lease.fence, request.weight, lease.copies, request.at_least_ms)

    @classmethod
    def parse(cls, text: str, request: PermitRequest) -> Self:
        """Read the output of `text`. Raises ValueError for any other text, and for a lease of another kind."""
        if not isinstance(text, str):
            raise TypeError(f"the token must be a str, not {type(text).__name__}")
        if (found := TEXT.fullmatch(text)) is None:
            raise ValueError("the token is not one that detach() returned")
        kind, token, fence, weight, copies, at_least = found.groups()
        if kind != request.place.kind:
            raise ValueError(
                f"the token is of the kind {kind}, and {request.name!r} is of the kind {request.place.kind} here"
            )
        return cls(kind, token.encode(), int(fence), int(weight), copies == "1", int(at_least or 0))

    @property
    def text(self) -> str:
        """All of it, as opaque text."""
        text = f"{self.kind}.{self.token.decode()}.{self.fence}.{self.weight}.{self.copies:d}"
        return f"{text}.{self.at_least_ms}" if self.at_least_ms else text


def adopt(
    request: PermitRequest, detached: DetachedLease, owner: Any, shown: tuple[str, str] | None
) -> Steps[LeaseState]:
    """Extend a lease that another client acquired to a whole ttl, and return it.

    ``shown`` is the control channel and the label of the client that keeps it from now on; None leaves them as they
    are. Raises LeaseLost if the lease has ended, and NotReplicated.
    """
    request = request.granted(detached.weight, detached.at_least_ms)
    sent_at, lease_us = yield from renewed(request, detached.token, request.ttl_ms)
    if lease_us == 0:
        raise LeaseLost(request.name, detached.fence, NOT_THERE)
    granted_at = sent_at
    if shown is not None:
        with contextlib.suppress(ServerRefused):  # a user may lack the right: then another client is shown
            answer: Answer = yield request.adopt(detached.token, *shown)
            tag, *numbers = answer.fields
            if tag == b"adopted" and numbers[0] >= 0:
                granted_at = answer.sent_at - numbers[0] / 1e6
    grant = Grant(detached.fence, sent_at + lease_us / 1e6, lease_us / 1e6, copies=detached.copies)
    lease = LeaseState(request, detached.token, grant, owner, sent_at)
    lease.granted_at = granted_at
    lease.renewed(sent_at, lease_us)
    return lease
