"""Take the place of earlier requests, and have the holder end.

An overtaking request is queued first: at the end, or with a head start that no other request has. Then it dismisses
all waiters before it in the queue, and asks the holders to end. The server keeps the time which the first such request
has left the holder, and takes the lease when asked again after this time: the same script decides whose lease it is,
and takes it. Messages may be lost, so the holder is asked again and again.

Dismissed waiters find a tombstone when they ask: see `acquire`.
"""

from __future__ import annotations

from math import inf

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Park, Steps, Waking
from handfast._protocol.acquire import Attempt, Watch, wait
from handfast._protocol.admin import NO_GRACE

__all__ = ["AHEAD_US", "NO_GRACE", "Overtaking"]

AHEAD_US = 1000 * 86_400_000_000
"""The head start of a request that preempts, in microseconds: above the largest head start and the longest wait."""

REPEAT_S, MAX_REPEAT_S = 0.1, 1.0
"""After how many seconds the holder is asked again, since a message may be lost. The pause doubles, up to the second."""

SLACK_S = 0.001
"""How long after the end of the grace the holder is revoked, in seconds: earlier, the server refuses to."""


class Overtaking:
    """How an attempt overtakes. ``grace_ms`` is the time left to the holder; NO_GRACE does not ask the holder."""

    def __init__(self, grace_ms: int, by: str, reason: str) -> None:
        self._grace_ms = grace_ms
        self._by = by
        self._reason = reason
        self._due = -inf
        self._repeat_s = REPEAT_S

    def wait(self, attempt: Attempt, park: Park, now: float, watch: Watch | None) -> Steps[Waking]:
        """Wait as `wait` does, and overtake at the beginning and when it is due."""
        request = attempt.request
        assert isinstance(request, PermitRequest)  # noqa: S101 -- see `Lock` and `Semaphore`
        if watch is not None:
            watch(now)  # one that waits for itself asks no one
        while True:
            if now >= self._due:
                answer: Answer = yield request.overtake(attempt.token, self._grace_ms, self._by, self._reason)
                tag, *numbers = answer.fields
                if tag == b"gone":  # granted or dismissed meanwhile, or it has lost its place: to ask again tells
                    return Waking(answer.sent_at, None)
                now = answer.sent_at
                if numbers[1]:
                    continue
                self._due = now + self._pause(numbers[0])
            waking = yield from wait(park._replace(until=min(park.until, self._due)), now, watch)
            now = waking.woke_at
            if waking.grant is not None or now >= park.until or now < self._due:
                return waking

    def _pause(self, left_us: int) -> float:
        """Return after how many seconds to overtake again. ``left_us``: until the first holder is revoked; -1 for none."""
        if self._grace_ms == NO_GRACE:
            return inf
        if left_us < 0:
            return MAX_REPEAT_S
        pause, self._repeat_s = self._repeat_s, min(MAX_REPEAT_S, 2 * self._repeat_s)
        return min(pause, left_us / 1e6 + SLACK_S)
