"""Batches: acquires of free locks, releases of locks without waiters, or admissions by limiters, in a single call.

Requests of the same kind that leave together, each for another name, travel in a batch. The scripts of batches do only
the short way: of a lock that is plainly free, of a lock that the token holds with an empty queue, or of a limiter with
a single rate and without waiters. For every other name the script changes nothing, and the session sends the ordinary
call. So a batch promises nothing: any part of the names may have been served, and each ordinary call finds by the token
whether the batch has served the name.

A single request goes the usual way, which is shorter. So does a request for a name that a batch has not served, until
an ordinary call finds the name free: a contended name would only cost a second call, and enter the queue later.

In a cluster the names of a batch must share a slot, as those of a namespace in braces do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, filterfalse
from struct import unpack
from typing import Any, Protocol, TypeVar

from handfast._engine.constants import TOKEN_SIZE
from handfast._engine.effects import Call
from handfast._engine.packing import doubles
from handfast._engine.resp import bulk
from handfast._engine.script import load

__all__ = ["MOST", "Joinable", "join", "replies", "split"]

MOST = 64
"""The most names of a batch, which bounds for how long it keeps the server from others. More would gain 1 %."""

ACQUIRE, RELEASE, ADMIT = load("locks_acquire"), load("locks_release"), load("limit_batch")

_LENGTH = b"%c" % TOKEN_SIZE
"""The length that precedes a token. A call for a token of another size has no ``joining``, and so joins no batch."""

COST = slice(8, 16)
"""Where the record of a limiter's request has the cost."""

_RELEASED = {ord("1"): [b"released", 0]}
"""What permit_release replies where no one waits, as it is read."""


class Joinable(Protocol):
    """A request."""

    call: Call
    again: bool
    """Whether it was sent before, without a reply of its own: it never joins a batch then."""


R = TypeVar("R", bound=Joinable)


def split(requests: list[R], slot_of: Callable[[Call], object] | None = None) -> tuple[list[R], list[list[R]]]:
    """Return the requests that go alone, in their order, and the batches of the others, each of one slot.

    Several requests for the same name go alone: they keep their order.
    """
    kinds: defaultdict[object, dict[bytes, R | None]] = defaultdict(dict)
    for request in requests:
        call = request.call
        joining = call.joining
        # A request that was sent before may have run. Only the ordinary script finds that by the token.
        if joining is not None and joining.is_free and not request.again:
            kind = joining.kind if call.waiter else b""
            members = kinds[kind if slot_of is None else (kind, slot_of(call))]
            key = joining.key
            # None stays as a mark: a third request for the name goes alone as well.
            members[key] = None if key in members else request
    batches: list[list[R]] = []
    for members in kinds.values():
        row = [*filter(None, members.values())]
        # The range ends before the last request of the row: one that would be a batch of its own goes alone.
        batches += [row[start : start + MOST] for start in range(0, len(row) - 1, MOST)]
    if not batches:
        return requests, batches
    if sum(map(len, batches)) == len(requests):
        return [], batches
    joined = {*chain.from_iterable(batches)}
    return [*filterfalse(joined.__contains__, requests)], batches


def join(calls: Sequence[Call]) -> Call:
    """Return one call for all calls of a batch."""
    first, number, joining = calls[0], len(calls), calls[0].joining
    keys = b"".join([call.joining.key for call in calls if call.joining is not None])
    # All requests of a batch are alike but for key, token, and caller or cost: `kind` has the rest, once.
    if joining is not None and joining.is_limiter:
        requests = b"".join([part for call in calls for part in (_LENGTH, call.token, call.wants[COST])])
        return Call(ADMIT.prefix_for(4 * number, 2), keys + bulk(requests) + joining.kind)
    if first.waiter and joining is not None:
        names = b"".join([part for call in calls for part in (_LENGTH, call.token, call.caller)])
        args = keys + bulk(names) + joining.kind
        # The session adds its inbox to the end of `wants`, so the script gets it once for all names.
        return Call(ACQUIRE.prefix_for(number, 3), args, waiter=first.waiter, wants=first.wants, value=first.value)
    names = b"".join([part for call in calls for part in (_LENGTH, call.token)])
    return Call(RELEASE.prefix_for(number, 1), keys + bulk(names))


def replies(batch: Call, reply: bytes) -> Iterable[Any]:
    """Return the reply to each call of a batch, as the ordinary script gives it; None or 0 for those that are to go alone."""
    if batch.prefix.name == ADMIT.name:
        now, *left = unpack(f"<{len(reply) // 8}d", reply)
        return [None if one < 0 else b"admitted " + doubles(now, one) for one in left]
    if batch.waiter:
        return map(int, unpack(f"<{len(reply) // 8}d", reply))
    return map(_RELEASED.get, reply)
