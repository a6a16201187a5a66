"""Looking at a name from outside, taking its leases away by force, and setting how many permits it has."""

from __future__ import annotations

from typing import Any, NamedTuple

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Steps
from handfast.records import Holder, LockStatus, Waiter

__all__ = ["force_release", "resize", "status"]


def status(want: PermitRequest) -> Steps[LockStatus]:
    """Who holds the name and who waits for it, at one instant of the server."""
    answer: Answer = yield want.inspect()
    _, now_us, fence, resized, out, _, waiting, held_by, waited_by = answer.reply
    limit = resized or want.limit
    holders = []
    for token, deadline, text in _rows(held_by):
        record = _record(text)
        remaining, held_for = (float(deadline) - now_us) / 1e6, (now_us - record.since) / 1e6
        exclusive = record.weight >= (resized or record.limit)
        holders.append(
            Holder(token.decode(), record.fence, record.weight, remaining, held_for, record.label, exclusive)
        )
    waiters = []
    for position, (token, _, text) in enumerate(_rows(waited_by)):
        record = _record(text)
        waited_for, exclusive = (now_us - record.since) / 1e6, record.weight >= (resized or record.limit)
        waiters.append(Waiter(token.decode(), record.weight, position, waited_for, record.label, exclusive))
    free = 0 if out < 0 else max(0, limit - out)
    return LockStatus(tuple(holders), tuple(waiters), fence, waiting, limit, free)


def force_release(want: PermitRequest, reason: str) -> Steps[int]:
    """Take away all leases that there are now; how many they were.

    The fence seen first bounds what is taken, so a call that is sent again cannot hurt whoever came next.
    """
    seen: Answer = yield want.inspect(0)
    _, now_us, fence, *_ = seen.reply
    count, more, start = 0, 1, b"-inf"
    while more:
        # Fences are times, unless the clock stepped back: where the latest one is forgotten, the time will do.
        answer: Answer = yield want.revoke(max(now_us, fence), reason, start)
        _, revoked, more, start = answer.reply
        count += revoked
    return count


def resize(want: PermitRequest, limit: int) -> Steps[None]:
    """Set how many permits there are, and let in who fits now."""
    more = 1
    while more:
        answer: Answer = yield want.resize(limit)
        more = answer.reply[1]


class _Record(NamedTuple):
    """What the server remembers of a token; see ``lua/lib/grant.lua``."""

    weight: int
    limit: int
    claim_ms: int
    wait_until: int
    fence: int
    since: int
    label: str


def _rows(flat: list[Any]) -> list[tuple[bytes, bytes, bytes]]:
    return list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def _record(text: bytes) -> _Record:
    if not text:  # evicted
        return _Record(0, 1, 0, 0, 0, 0, "")
    *numbers, _inbox, _home, label = text.decode(errors="replace").split(" ", 8)
    weight, limit, claim_ms, wait_until, fence, since = map(int, numbers)
    return _Record(weight, limit, claim_ms, wait_until, fence, since, label)
