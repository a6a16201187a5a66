"""Be admitted by a limiter: from a request to an admission.

The server decides who is admitted, in the order of the queue. This module decides when to ask again:

- The first waiter knows from its reply when it may fit, and asks then. Another waiter that becomes the first
  learns the time from a message, and asks no earlier.
- A waiter may be admitted by the script of any other caller. Then a message says so, and it does not ask again.
- Messages may be lost, so the others poll, too: when the first waiter would be late, spread by queue position; and at
  least every third of their wait-lease.

A caller gives up before it waits if it is certain to take longer than its timeout.

Where an operator has set rates, a reply tells them, and the caller asks again under those: so does every later call of
the same object, since the request of the attempt is taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from handfast._engine.effects import Answer, Call, GrantMessage, Park, Steps, Waking
from handfast._engine.keys import KeySet
from handfast._engine.limits import Cost, Limit, LimitRequest, Window, read_limits
from handfast._engine.moments import moment
from handfast._engine.names import SCANNED
from handfast._engine.script import command, pack
from handfast._protocol.acquire import (
    MAX_POLL_S,
    POLL_STAGGER_S,
    UNHEARD_POLL_S,
    cancel,
)
from handfast._protocol.admin import last_action
from handfast._protocol.asking import Acted, ObjectAttempt, change
from handfast.errors import HandfastError, LimitExceeded, QueueFull

if TYPE_CHECKING:
    from handfast.records import LimiterStatus

__all__ = [
    "Announcements",
    "Decision",
    "LimitAttempt",
    "acquire",
    "announce",
    "found",
    "pause",
    "read_status",
    "remaining",
    "reset",
    "resize",
    "settle",
    "short",
    "status",
    "windows",
]

EARLY_S = 0.0005
"""How long after its time the first waiter asks, in seconds: one that comes too early asks twice."""

TAKEOVER_S = 1.0
"""How long after that time the second waiter asks, in seconds, in case the first one does not come."""

SET_RATES = 5
"""The place in the reply of ``limit_inspect`` of the rates that are set."""

FIRST_RATES = 8
"""The place of those of the first waiter."""

MIN_RETRY_S = 0.001
"""The least ``retry_after`` of a call that is not admitted, in seconds."""


class Decision(NamedTuple):
    """Whether a call is admitted, and how much the tightest rate admits then; or in how many seconds to come again."""

    admitted: bool
    remaining: int
    retry_after: float = 0.0
    exceeded: bool = False
    """Whether it is admitted only because its limiter does not enforce the rates."""
    rests: tuple[int, ...] = ()
    """Of a limiter with metrics, what each rate admits."""


class Turn(NamedTuple):
    """A waiter is the first now. Times are the server's, in microseconds."""

    fits_us: int
    """When the call may fit."""
    sent_us: int


def read_message(message: GrantMessage) -> Decision | Turn:
    """Read a message for a waiter of a limiter, which has the form of a grant."""
    number, sent_us, is_admitted, rests = message
    return Decision(True, number, rests=rests) if is_admitted else Turn(number, sent_us)


class LimitAttempt(ObjectAttempt):
    """An attempt to be admitted."""

    __slots__ = ()

    request: LimitRequest


def acquire(attempt: LimitAttempt, until: float) -> Steps[Decision]:
    """Be admitted, waiting in the queue if need be. An attempt not admitted by the moment ``until`` is cancelled.

    A moment in the past asks once, and leaves the queue as it is. Raises QueueFull, LimitExceeded and ServerRefused.
    """
    token, ticket, now = attempt.token, 0, attempt.asked_at
    name = attempt.request.name
    attempt.may_be_there = True
    while True:
        answer: Answer = yield attempt.request.acquire(token, until - now, ticket)
        sent_at = answer.sent_at
        decision = _decision(attempt, answer)
        if decision is not None:
            return decision
        tag, *numbers = answer.fields
        if tag == b"more":
            continue
        if tag == b"rates":
            _take_rates(attempt, numbers[0])
            continue
        if tag != b"queued":
            raise HandfastError(f"the request for {name!r} was cancelled while it waited", name=name)
        asked_us, attempt.position, due_us, ticket, *rests = numbers
        come_at = sent_at + due_us / 1e6
        if come_at < until:
            decision, now, come_at = yield from _wait(attempt, sent_at, asked_us, come_at, until)
            if decision is not None:
                return decision
        if come_at >= until or now >= until:
            yield from cancel(attempt)
            return _refused(min(rests, default=0), come_at - now, rests)


def _decision(attempt: LimitAttempt, answer: Answer) -> Decision | None:
    """Return the decision of a reply; None if there is none. Raises QueueFull."""
    fields = answer.fields
    tag = fields[0]
    if tag == b"admitted":
        return Decision(True, fields[2]) if len(fields) == 3 else Decision(True, fields[2], rests=tuple(fields[3:]))
    if tag == b"exceeded":
        return Decision(True, fields[2], max(MIN_RETRY_S, fields[1] / 1e6), exceeded=True, rests=tuple(fields[3:]))
    if tag == b"refused":
        attempt.rejected()
        return _refused(fields[2], fields[1] / 1e6, fields[3:])
    if tag == b"full":
        attempt.rejected()
        raise QueueFull(attempt.request.name, fields[1])
    return None


def _take_rates(attempt: LimitAttempt, packed: bytes) -> None:
    """Ask under these rates from now on; under the caller's own, if there are none. Raises LimitExceeded."""
    attempt.request = request = attempt.request.under(read_limits(packed))
    if rate := request.too_much(request.cost):
        raise LimitExceeded(request.name, rate.limit, rate.cost_of(request.cost), rate.metric or None)


def remaining(request: LimitRequest, decision: Decision) -> dict[str, int]:
    """Return how much more of each metric of a limiter is admitted after a decision."""
    found = dict[str, int]()
    is_paused = not decision.remaining and 0 not in decision.rests
    for rate, rest in zip(request.rates, decision.rests, strict=False):
        found[rate.metric] = 0 if is_paused else min(rest, found.get(rate.metric, rest))
    # an operator may have set rates of other metrics
    return {rate.metric: found.get(rate.metric, decision.remaining) for rate in request.own}


def short(request: LimitRequest, decision: Decision) -> str | None:
    """Return a metric with too little left for a refused call; None if there is none."""
    if decision.admitted:
        return None
    windows = zip(request.rates, decision.rests, strict=False)
    return next((rate.metric for rate, rest in windows if rate.cost_of(request.cost) > rest), None) or None


class Announcements:
    """When this client has to announce each limiter, so that operators see the rates."""

    EVERY_S, MOST = 600.0, 1000
    """How often, and of how many limiters it is remembered."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], float] = {}

    def is_due(self, attempt: LimitAttempt) -> bool:
        """Return whether a limiter was not announced lately, and count it as announced. Rates set for all never are."""
        request, now = attempt.request, attempt.asked_at
        if request.fixed["follows"]:
            return False
        name = request.place.root
        if now < self._due.get(name, -inf):
            return False
        if len(self._due) >= self.MOST:
            self._due.clear()
        self._due[name] = now + self.EVERY_S
        return True


def announce(request: LimitRequest) -> Steps[None]:
    """Let operators see the rates. Nothing depends on it."""
    yield request.announce()


def settle(attempt: LimitAttempt, cost: Cost) -> Steps[None]:
    """Let an admission count for another cost; 0 takes it back."""
    yield from change(lambda: attempt.request.settle(attempt.token, cost, copies=attempt.copies))


def pause(request: LimitRequest, pause_ms: int, by: str, reason: str | None) -> Steps[float]:
    """Admit no caller for ``pause_ms``. Return the seconds until the pause ends: more where a longer pause goes on."""
    why = f"{pause_ms / 1000:.3f}" if reason is None else reason
    left_us, _ = yield from change(lambda: request.pause(pause_ms, by, why))
    return float(left_us) / 1e6


def resume(request: LimitRequest, by: str, reason: str | None, shown_us: int | None = None) -> Steps[Acted]:
    """End the pause with the end ``shown_us``, or else the present pause, and serve the queue.

    Without ``shown_us`` the end is looked up first: a call that is sent again must not end a pause set in between.
    """
    # The end of a pause identifies it. Each copy of the call
    # below carries it, so a late copy ends no later pause.
    if shown_us is None:
        _, seen = yield from _inspect(request)
        _, now_us, _, paused_us, *_ = seen.fields
        if not paused_us:
            return "nothing"
        shown_us = now_us + paused_us
    ended, again, is_other, more = False, False, False, 1
    # One call serves at most 100 waiters. Only the first one
    # finds the pause, so each fact is kept over the calls.
    while more:
        answer: Answer = yield request.pause(0, by, reason or "", shown_us)
        again, is_other = again or answer.again, answer.fields[0] == b"changed"
        left_us, more = (0, 0) if is_other else answer.fields[1:]
        ended = ended or left_us > 0
    # Where the reply of the call that ended the pause was lost, its copy finds no pause. The note of the act,
    # which the script writes first, then tells who ended it.
    if again and not ended:
        noted = (yield from status(request)).last
        ended = noted is not None and (noted.what, noted.by, noted.why) == ("resume", by, reason or "")
    return "done" if ended else "nothing" if not is_other else "unknown" if again else "other"


def resize(request: LimitRequest, by: str, why: str) -> Steps[None]:
    """Set the rates of a request for all; if they are the caller's own, let each bring its own. Serve the queue."""
    yield from change(lambda: request.resize(by, why))


def reset(request: LimitRequest) -> Steps[None]:
    """Forget the admissions until now under the rates in force, and serve the queue."""
    request, answer = yield from _inspect(request)
    yield from change(lambda: request.call("reset", until_us=answer.fields[1]))


def windows(place: KeySet, slot: int | None) -> Steps[list[Window]]:
    """Return the windows in which a limiter has admitted something. In a cluster ``slot`` is the limiter's slot."""
    begin, found, cursor = place.key("window:"), set[Window](), b"0"
    while True:
        args = (cursor, "MATCH", f"{begin}*", "COUNT", SCANNED)
        answer: Answer = yield Call(command("SCAN", len(args)), pack(args))._replace(slot=slot)
        cursor, keys = answer.reply
        found |= {Window.read(key.decode().removeprefix(begin)) for key in keys}
        if cursor == b"0":
            return sorted(found)


def _inspect(request: LimitRequest) -> Steps[tuple[LimitRequest, Answer]]:
    """Read the state of a limiter. Return it, and the request under the rates in force."""
    while True:
        answer: Answer = yield request.call("inspect")
        under = request.under(read_limits(answer.fields[SET_RATES]))
        if under.rates == request.rates:
            return under, answer
        request = under


def status(request: LimitRequest) -> Steps[LimiterStatus]:
    """Read how full the windows are, how many wait, how long a pause lasts, and the last change."""
    request, answer = yield from _inspect(request)
    return read_status(answer.fields, [rate.window for rate in request.rates], request.rates)


def read_status(
    fields: Sequence[Any], windows: Sequence[Window], rates: Sequence[Limit] = (), announced: bytes = b""
) -> LimiterStatus:
    """Make the status of a reply of ``limit_inspect`` for these windows, in their order.

    Without ``rates`` it takes the rates set for all, or else the first waiter's, or else the limits announced
    by a client for these windows. An unknown limit is 0.
    """
    from handfast.records import LimiterStatus, RateStatus

    _, now_us, waiting, paused_us, noted, set_rates, shown, first_us, first_rates = fields
    counts = dict(zip(windows, zip(shown[::2], shown[1::2], strict=True), strict=True))
    if not rates and not (rates := read_limits(set_rates or first_rates)):
        known = {rate.window: rate.limit for rate in read_limits(announced)}
        rates = [window.under(known.get(window, 0)) for window in windows]
    found = []
    for rate in rates:
        used, reset_us = counts.get(rate.window, (0, 0))
        left = max(0, rate.limit - used)
        found.append(RateStatus(rate.limit, rate.per_ms / 1000, used, left, reset_us / 1e6, rate.metric))
    longest = max(0, now_us - first_us) / 1e6 if first_us else None
    paused_until = moment(now_us + paused_us) if paused_us else None
    return LimiterStatus(tuple(found), waiting, paused_us / 1e6, last_action(noted), longest, paused_until)


def found(fields: Sequence[Any], windows: Sequence[Window], announced: bytes) -> LimiterStatus | None:
    """Return the status of a limiter found by a search; None if the server does not know it."""
    status = read_status(fields, windows, (), announced)
    is_known = status.waiting or status.paused_for or status.last or any(rate.used for rate in status.rates)
    return status if is_known else None


def _wait(
    attempt: LimitAttempt, sent_at: float, asked_us: int, come_at: float, until: float
) -> Steps[tuple[Decision | None, float, float]]:
    """Wait until a message admits the call, or until it is time to ask again. Return also the moment, and when it may fit."""
    position = attempt.position or 0
    delay = TAKEOVER_S + POLL_STAGGER_S * position if position else EARLY_S
    poll_at = come_at + UNHEARD_POLL_S + POLL_STAGGER_S * position
    while True:
        park_until = min(until, come_at + delay, sent_at + MAX_POLL_S)
        waking: Waking = yield Park(attempt.token, park_until, None, poll_at)
        woke_at, message, _ = waking
        told = None if message is None else read_message(message)
        if not isinstance(told, Turn):
            return told, woke_at, come_at
        # Both are lower bounds of that time, unless the server's clock was set in between.
        come_at = min(sent_at + (told.fits_us - asked_us) / 1e6, woke_at + (told.fits_us - told.sent_us) / 1e6)
        delay, poll_at = EARLY_S, inf
        if come_at <= woke_at or come_at >= until:
            return None, woke_at, come_at


def _refused(remaining: int, retry_after: float, rests: Sequence[int] = ()) -> Decision:
    return Decision(False, remaining, max(MIN_RETRY_S, retry_after), rests=tuple(rests))
