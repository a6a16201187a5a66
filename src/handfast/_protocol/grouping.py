"""Protocols of a group: list the members, and send messages to those who wait for a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Steps
from handfast._engine.keys import KeySet
from handfast._engine.names import INSPECTED, inspect_all
from handfast._engine.objects import ObjectRequest
from handfast._engine.options import LeaseOptions
from handfast._engine.records import read_record
from handfast._kinds import MAX_PERMITS
from handfast._protocol.admin import read_status
from handfast._protocol.asking import tell

if TYPE_CHECKING:
    from handfast.records import Member

__all__ = ["MAX_MEMBERS", "NOTHING", "PAUSE_S", "Seen", "look", "members", "owners", "request", "ring", "seen", "size"]

MAX_MEMBERS = 10_000
"""Members which a call lists at most."""

PAUSE_S = 0.05
"""Seconds after a message for further changes, which cost no call of their own then."""


class Seen(NamedTuple):
    """The marks that tell a set of members from later sets."""

    latest: int
    """The largest fence."""
    known: int
    """How many members there are."""


NOTHING = Seen(-1, -1)
"""Of a caller that knows nothing."""


def request(place: KeySet, options: LeaseOptions) -> PermitRequest:
    """Return the request of a member."""
    return PermitRequest(place, options, limit=MAX_PERMITS)


def look(request: PermitRequest) -> Steps[tuple[Member, ...]]:
    """Read the members."""
    from handfast.records import Member

    answer: Answer = yield request.inspect(MAX_MEMBERS)
    found = read_status(answer.fields, request.limit).holders
    return in_order(Member(one.value, one.label, one.fence, one.held_for, one.remaining) for one in found)


def size(request: PermitRequest) -> Steps[int]:
    """Count the members."""
    answer: Answer = yield request.inspect(0)
    return read_status(answer.fields, request.limit).holding


def seen(answer: Answer) -> Seen:
    """Return the marks that tell the members of a reply from others."""
    tag, *numbers = answer.fields
    fence, size = (numbers[0], 0) if tag == b"empty" else numbers[1:3]
    return Seen(int(fence), int(size))


def members(answer: Answer) -> tuple[Member, ...]:
    """Return the members of a reply."""
    from handfast.records import Member

    if answer.fields[0] == b"empty":
        return ()
    _, now_us, _, _, rows = answer.fields
    found = []
    for ends_us, text in zip(rows[::2], rows[1::2], strict=True):
        record = read_record(text)
        if record is not None:
            joined_for, remaining = max(0, now_us - record.mark) / 1e6, max(0, int(ends_us) - now_us) / 1e6
            found.append(Member(record.value, record.label, record.mark, joined_for, remaining))
    return in_order(found)


def in_order(members: Iterable[Member]) -> tuple[Member, ...]:
    """Return the members in the order in which they joined, which all who look agree on."""
    return tuple(sorted(members, key=lambda one: one.fence))


def owners(places: Sequence[KeySet], *, apart: bool) -> Steps[list[Member | None]]:
    """Read who holds each name; by a call each if the names are ``apart``, in several slots of a cluster."""
    from handfast.records import Member

    found: list[Member | None] = []
    size = 1 if apart else INSPECTED
    for start in range(0, len(places), size):
        batch = places[start : start + size]
        answer: Answer = yield inspect_all(batch, 1)
        for fields in [answer.reply] if len(batch) == 1 else answer.reply:
            holders = read_status(fields, 1).holders
            found.append(
                Member(one.value, one.label, one.fence, one.held_for, one.remaining)
                if (one := next(iter(holders), None))
                else None
            )
    return found


def ring(request: ObjectRequest) -> Steps[None]:
    """Send a message to all who wait."""
    yield from tell(lambda: request.call("ring"))
