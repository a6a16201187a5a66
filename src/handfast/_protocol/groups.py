"""Locks of several slots of a cluster: acquired group by group, and held and lost together.

A call reaches the names of a single slot only. So the names of each slot are a group, with a separate attempt and a
separate lease. The groups are acquired in turn, in the order of their slots. All callers have the same order, and a
caller which waits for a group holds only groups before it: so callers can't wait for each other in a circle.

A held group is renewed while the caller waits for the next group. If the caller does not get the lease of every group,
the groups acquired so far are undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from handfast._engine.calls import Request
from handfast._engine.messages import Wanted
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast._protocol.loss import Loss

__all__ = ["GroupedAttempt", "GroupedLease"]


class GroupedAttempt(Attempt):
    """The attempts of all groups. All exist from the beginning, so that an undo of the whole reaches them."""

    __slots__ = ("_parts",)

    def __init__(self, request: Request, parts: Sequence[Attempt]) -> None:
        super().__init__(request, b"", parts[0].asked_at, parts[0].caller)
        self._parts = tuple(parts)

    @property
    def parts(self) -> tuple[Attempt, ...]:
        """The attempts of the groups, in the order in which they are acquired."""
        return self._parts


class GroupedLease(LeaseState):
    """The leases of all groups together: held while all are, lost with the first, and released when the last is.

    The whole has no separate state, and no call is sent for it: drivers go through the ``parts``.
    """

    __slots__ = ("_parts",)

    def __init__(self, request: Request, parts: Sequence[LeaseState]) -> None:  # not that of the class: see above
        self._parts = tuple(parts)
        tokens = tuple(part.token for part in parts)
        self.request = request
        self.token = b",".join(tokens)
        self.fence = min(part.fence for part in parts)
        """The smallest: no resource takes it from a holder that a later one has followed, whichever name that one
        has."""
        self.asked_at = min(part.asked_at for part in parts)
        self.acquired_at = max(part.acquired_at for part in parts)
        self.ends_at = min(part.ends_at for part in parts)
        self.callbacks = []
        for part in parts:
            part.callbacks, part.companions = self.callbacks, tokens

    @property
    def parts(self) -> tuple[LeaseState, ...]:
        """The leases of the groups, in the order in which they were acquired."""
        return self._parts

    @property
    def deadline(self) -> float:  # type: ignore[override]  # read-only: it is that of a part
        """When the first part ends."""
        return min(part.deadline for part in self._parts)

    @property
    def ended_at(self) -> float:  # type: ignore[override]  # as above
        """When the first part has ended."""
        return min(part.ended_at for part in self._parts)

    @property
    def loss(self) -> Loss | None:  # type: ignore[override]  # as above
        """Why the first lost part was lost; None if none was."""
        lost = [part for part in self._parts if part.loss is not None]
        return min(lost, key=lambda part: part.ended_at).loss if lost else None

    @property
    def wanted(self) -> Wanted | None:  # type: ignore[override]  # as above
        """The wish of a later request for a part to end; None if no part is to end."""
        return next((part.wanted for part in self._parts if part.wanted is not None), None)

    def claim_yield(self) -> bool:
        """Return True once, if any part is to end."""
        claimed = [part.claim_yield() for part in self._parts]
        return any(claimed)

    @property
    def block(self) -> object:
        """The block that holds the parts."""
        return self._parts[0].block

    @block.setter
    def block(self, block: object) -> None:
        for part in self._parts:
            part.block = block

    @property
    def is_released(self) -> bool:  # type: ignore[override]  # as above
        """Whether the holder let all parts go."""
        return not [part for part in self._parts if not part.is_released]

    def lost(self, now: float) -> bool:
        """Return whether a part was lost. Each of them finds out."""
        for part in self._parts:
            part.lost(now)
        return self.loss is not None

    def let_go(self, now: float) -> None:
        """Note the end of the holder's use of all parts."""
        for part in self._parts:
            part.let_go(now)
