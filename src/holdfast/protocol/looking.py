"""Looking at a name from outside, and taking its leases away by force."""

from __future__ import annotations

from typing import Any

from holdfast.wire.effects import Answer, Steps
from holdfast.wire.permits import Permits
from holdfast.words.records import Holder, LockStatus, Waiter

__all__ = ["force_release", "status"]


def status(want: Permits) -> Steps[LockStatus]:
    """Who holds the name and who waits for it, at one instant of the server."""
    answer: Answer = yield want.inspect()
    _, now_us, fence, _, waiting, held_by, waited_by = answer.reply
    holders = []
    for token, deadline, record in _rows(held_by):
        weight, _, _, granted_fence, since, label = _record(record)
        remaining, held_for = (float(deadline) - now_us) / 1e6, (now_us - since) / 1e6
        holders.append(Holder(token.decode(), granted_fence, weight, remaining, held_for, label))
    waiters = []
    for position, (token, _, record) in enumerate(_rows(waited_by)):
        weight, _, _, _, since, label = _record(record)
        waiters.append(Waiter(token.decode(), weight, position, (now_us - since) / 1e6, label))
    return LockStatus(tuple(holders), tuple(waiters), fence, waiting)


def force_release(want: Permits, reason: str) -> Steps[int]:
    """Take away all leases that there are now; how many they were.

    The fence seen first bounds what is taken, so a call that is sent again cannot hurt whoever came next.
    """
    seen: Answer = yield want.inspect(0)
    _, now_us, fence, *_ = seen.reply
    count, more = 0, 1
    while more:
        # Fences are times, unless the clock stepped back: where the latest one is forgotten, the time will do.
        answer: Answer = yield want.revoke(max(now_us, fence), reason)
        _, revoked, more = answer.reply
        count += revoked
    return count


def _rows(flat: list[Any]) -> list[tuple[bytes, bytes, bytes]]:
    return list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def _record(record: bytes) -> tuple[int, int, int, int, int, str]:
    """Weight, claim, wait-lease, fence, since and label; see ``lua/parts/permits.lua``."""
    if not record:  # evicted
        return 0, 0, 0, 0, 0, ""
    weight, claim, wait_until, fence, since, _inbox, _home, label = record.decode(errors="replace").split(" ", 7)
    return int(weight), int(claim), int(wait_until), int(fence), int(since), label
