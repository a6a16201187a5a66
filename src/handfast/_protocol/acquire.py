"""Acquire: from a request to a lease.

The server decides who gets a lease. This module decides when to ask again, and which deadline to believe:

- A lease granted at once is counted from the moment before the request was sent. The server starts counting later, so
  the local deadline is never later than the server's (invariant 8).
- A grant message carries the server's time of the grant. The reply which put the request in the queue carried the
  server's time, too. The difference, added to the moment before the request was sent, is a lower bound for the local
  time of the grant. It is capped at the moment when the waiter woke, in case the server's clock jumped ahead.
- Each further request carries the ticket of the first reply. By it the waiter gets back a place which the server has
  lost.

A grant that is handed over lasts the claim window at first, so a frozen receiver does not block the others for a whole
ttl. The receiver confirms the grant: the driver sends a renewal for the whole ttl in the very step that receives the
message, before the caller runs, and does not wait for the reply. Whatever the caller does then, the lease lasts the
whole ttl.

A grant message may be lost, so it is never the only way in. A waiter polls when the earliest lease ends, spread by
queue position; soon enough to take over from a frozen grantee; and at least every third of the wait-lease, so that the
server knows the waiter is alive. Where no message comes through at all, behind some proxies, the waiter polls often:
the polling request then brings the grant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from handfast._engine.calls import Request
from handfast._engine.constants import CLAIM_MS, WAIT_MS
from handfast._engine.effects import Answer, Call, Confirmation, Found, Park, Steps, Waking
from handfast._engine.messages import Told
from handfast._engine.packing import read_reply
from handfast._protocol.retry import pause_before
from handfast.errors import HandfastError, NotReplicated, ServerRefused, Superseded

__all__ = [
    "Attempt",
    "BaseAttempt",
    "Grant",
    "acquire",
    "cancel",
    "not_replicated",
    "renewed",
    "try_acquire",
    "undo",
    "wait",
]


MAX_POLL_S = WAIT_MS / 3000
"""Longest poll interval of a waiter, in seconds: a third of its wait-lease."""

HEAD_POLL_S = CLAIM_MS / 2000
"""Poll interval of the first waiter, in seconds. Polling is the fallback for lost messages: half a claim window is
early enough both to take over from a frozen grantee and to claim a grant whose message was lost."""

UNHEARD_POLL_S = 0.05
"""Poll interval of the first waiter where no message comes through, in seconds. No waiter then polls more rarely than
HEAD_POLL_S: each may be granted at any time, and claims its grant by asking."""

POLL_STAGGER_S = 0.02
"""What each queue position adds to the poll interval, in seconds."""

EXPIRY_SLACK_S = 0.002
"""How long after the end of the earliest lease the first waiter polls, in seconds."""

EXPIRY_STAGGER_S = 0.001
"""What each queue position adds to that, in seconds."""

Watch: TypeAlias = Callable[[float], float]
"""Is called with the moment at the beginning of a wait, and again at the moment that it returns. What it raises ends
the wait."""

_BUSY = (b"busy", b"full", b"finished", b"superseded")
"""Replies by which one that does not wait has nothing."""


class Grant(NamedTuple):
    """A new lease; ``deadline`` is on the local clock, ``lease`` is the length, both in seconds.

    ``confirmation`` is None if none was sent.
    """

    fence: int
    deadline: float
    lease: float
    confirmation: Confirmation | None = None
    copies: bool = False
    """Whether a copy of the request may still be on its way to the server."""


make_grant: Callable[[tuple[int, float, float, Confirmation | None, bool]], Grant] = partial(tuple.__new__, Grant)
"""Make a grant of all its fields, as `make_call` makes a call."""


class Cancellable(Protocol):
    """The request of an attempt, with the call to undo it."""

    name: str

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, whatever it has reached."""


class Waiting(Protocol):
    """The wait of an attempt that does more than wait: see `handfast._protocol.overtaking`."""

    def wait(self, attempt: Any, park: Park, now: float, watch: Watch | None) -> Steps[Waking]:
        """Wait as `wait` does."""


class BaseAttempt:
    """An attempt to get something of the server, under a separate token: all that its undo needs."""

    __slots__ = (
        "__weakref__",
        "asked_at",
        "caller",
        "copies",
        "has_ended",
        "held",
        "is_left",
        "is_unanswered",
        "may_be_there",
        "overtaking",
        "owner",
        "position",
        "request",
        "token",
        "told",
    )

    told: Told | None
    """The message for its holder that came before the caller had a lease; None without one. Only the asyncio driver uses it."""

    def __init__(
        self, request: Cancellable, token: bytes, asked_at: float = 0.0, caller: int = 0, owner: Any = None
    ) -> None:
        self.request: Cancellable = request
        self.token: bytes = token
        self.asked_at: float = asked_at
        """When the caller asked for it, in seconds of the local clock. Its timeout counts from then."""
        self.caller: int = caller
        """The number of the thread or task; 0 where it is not shown."""
        self.owner: Any = owner
        """It is for the driver, as in `LeaseState`."""
        self.overtaking: Waiting | None = None
        """How it takes the place of others; None for one that waits behind them."""
        self.held: Sequence[Any] = ()
        """The leases (`LeaseState`) without which this one is of no use: a loss of one ends the wait."""
        self.may_be_there: bool = False
        """Whether the server may have something of it: a place, a grant, or a request that has not arrived yet."""
        self.copies: bool = False
        """Whether a copy of the request may still be on its way to the server."""
        self.position: int | None = None
        """How many stood before it in the queue when the server last said so; None if it was not in the queue."""
        self.is_unanswered: bool = False
        """Whether nothing may wait for the undo: the server stopped replying, or the caller's coroutine was closed."""
        self.is_left: bool = False
        """Whether the undo has begun, which goes on by itself."""

    def claim_end(self) -> bool:
        """Return True once: the end of the attempt is reported once. Only asked where functions listen."""
        had_ended: bool = getattr(self, "has_ended", False)
        self.has_ended: bool = True
        return not had_ended

    @property
    def parts(self) -> tuple[BaseAttempt, ...]:
        """The attempts behind this attempt: in a cluster an attempt per slot, with separate tokens."""
        return (self,)

    @property
    def needs_undo(self) -> bool:
        """Whether the caller has to cancel, since the server may have something of the attempt (invariant 7)."""
        return self.may_be_there and not self.is_left

    def rejected(self) -> None:
        """Note that the script ran, and neither granted nor enqueued the request: busy, queue full, or above the limit."""
        self.may_be_there = self.copies

    def refused(self) -> None:
        """Note that the server replied with an error and ran nothing: the state is as before."""
        self.may_be_there = self.may_be_there and (self.copies or self.position is not None)

    def answered(self, call: Call, answer: Answer | ServerRefused) -> None:
        """Note whether copies of the request may arrive late, or whether the server ran none.

        Drivers call this for every protocol. Only calls that may wait or be granted have a ``waiter``.
        """
        if not call.waiter:
            return
        if isinstance(answer, ServerRefused):
            if answer.changed_nothing:
                self.refused()
        elif answer.again:
            self.copies = True


class Attempt(BaseAttempt):
    """An attempt to acquire permits."""

    __slots__ = ()

    request: Request


def acquire(
    attempt: Attempt, until: float, make_watch: Callable[[Attempt], Watch] | None = None
) -> Steps[Grant | Found | None]:
    """Acquire, waiting in the queue if need be.

    Return `Found` if there is a record in place of a lease; and None if the moment ``until`` came first and the request
    is cancelled.

    Raises the rejections of the request, such as QueueFull; Superseded; ServerRefused; and the errors of the watch,
    which is made when the request is queued.
    """
    request, token, ticket, disagreements = attempt.request, attempt.token, 0, 0
    watch: Watch | None = None
    attempt.may_be_there = True
    while True:
        answer: Answer = yield request.acquire(token, ticket, caller=attempt.caller)
        sent_at, reply, _, _ = answer
        fields = read_reply(reply, request.grant_ms)
        tag = fields[0]
        if tag == b"granted":
            _, fence, lease_us = fields
            if request.acknowledgement is not None or lease_us < request.grant_ms * 500:
                # Replicas have to have it; or it was granted some time ago, and the message or the reply was lost: make
                # the rest a whole lease first.
                sent_at, lease_us = yield from renewed(request, token, request.grant_ms)
            if lease_us > 0:
                lease = lease_us / 1e6
                return make_grant((fence, sent_at + lease, lease, None, attempt.copies))
            # It has ended in between; or the two calls went to different servers, while one replaces the other.
            park = Park(token, min(until, sent_at + pause_before(disagreements)))
            disagreements += 1
        elif tag == b"queued":
            _, asked_us, attempt.position, retry_us, ticket = fields
            ask_at = sent_at + _poll_interval(attempt.position, retry_us)
            poll_at = sent_at + min(HEAD_POLL_S, UNHEARD_POLL_S + POLL_STAGGER_S * attempt.position)
            park = Park(token, min(until, ask_at), request.confirm(token), poll_at)
            watch = watch or (make_watch and make_watch(attempt))
        elif tag == b"finished":
            raise HandfastError(f"the request for {request.name!r} was cancelled while it waited", name=request.name)
        elif tag == b"superseded":
            if len(request.parts) == 1:
                attempt.rejected()
            raise Superseded(request.name)
        else:
            attempt.rejected()
            if (found := request.found(*fields)) is not None:
                return found
            raise request.rejection(*fields)
        overtaking = attempt.overtaking if tag == b"queued" else None
        waking = yield from (
            wait(park, sent_at, watch) if overtaking is None else overtaking.wait(attempt, park, sent_at, watch)
        )
        # What is not believed here is asked for again: replicas have to have it, or it came while servers disagree.
        believes = tag == b"queued" and request.trusts_messages and request.acknowledgement is None
        if believes and (grant := _handed_over(waking, sent_at, asked_us, attempt.copies)) is not None:
            return grant
        if waking.woke_at >= until:
            yield from cancel(attempt)
            return None


def _handed_over(waking: Waking, sent_at: float, asked_us: int, copies: bool) -> Grant | None:  # noqa: FBT001 -- a field of the grant
    """Return the grant of a message. None if none came, or too late to rely on it: then asking again tells."""
    woke_at, message, confirmation = waking
    if message is None:
        return None
    granted_at = min(sent_at + (message.granted_us - asked_us) / 1e6, woke_at)
    lease = message.lease_us / 1e6
    if granted_at + lease / 2 <= woke_at:
        return None
    return Grant(message.fence, granted_at + lease, lease, confirmation, copies)


def wait(park: Park, now: float, watch: Watch | None) -> Steps[Waking]:
    """Park, and call the watch in between."""
    while True:
        until = min(park.until, watch(now)) if watch else park.until
        waking: Waking = yield park if until == park.until else park._replace(until=until)
        now = waking.woke_at
        if waking.grant is not None or now < until or now >= park.until:
            return waking


def try_acquire(attempt: Attempt) -> Steps[Grant | Found | None]:
    """Acquire, or find a record, without waiting; else return None.

    The attempt may need an undo even then.
    """
    attempt.may_be_there = True
    answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)
    sent_at, reply, _, _ = answer
    tag, *numbers = read_reply(reply, attempt.request.grant_ms)
    if tag == b"granted":
        fence, lease_us = numbers
        if attempt.request.acknowledgement is not None:
            sent_at, lease_us = yield from renewed(attempt.request, attempt.token, attempt.request.grant_ms)
        if lease_us == 0:
            return None  # the server may still have a part of it: some of several names, or all on another server
        return Grant(fence, sent_at + lease_us / 1e6, lease_us / 1e6, None, attempt.copies)
    attempt.rejected()
    if tag in _BUSY:
        return None
    if (found := attempt.request.found(tag, *numbers)) is not None:
        return found
    raise attempt.request.rejection(tag, *numbers)


def renewed(request: Request, token: bytes, ttl_ms: int) -> Steps[tuple[float, int]]:
    """Renew a lease.

    Return from when on it lasts and how many microseconds: 0 if the server no longer had it. Raises NotReplicated.
    """
    answer: Answer = yield request.renew_for(token, ttl_ms)
    tag, *numbers = answer.fields
    if tag == b"lost":
        return answer.sent_at, 0
    if not request.is_acknowledged(answer):
        raise not_replicated(request, answer)
    return answer.sent_at, numbers[0]


def not_replicated(request: Request, answer: Answer) -> NotReplicated:
    """Return the error for a renewal that too few replicas have."""
    replicas, timeout_ms, _ = request.acknowledgement or (0, 0, b"")
    return NotReplicated(request.name, answer.replicas, replicas, timeout_ms / 1000)


def cancel(attempt: BaseAttempt) -> Steps[None]:
    """Cancel a request, and give back anything granted in the meantime (invariant 7)."""
    more = 1
    while more:
        answer: Answer = yield attempt.request.cancel(attempt.token)
        more = answer.fields[1]
    attempt.may_be_there = False


def undo(attempt: BaseAttempt) -> Steps[None]:
    """Cancel for a caller that has given up. The undo is begun once."""
    attempt.is_left = True
    yield from cancel(attempt)


def _poll_interval(position: int, retry_us: int) -> float:
    """Seconds until a waiter polls. ``retry_us``: until the earliest lease ends; 0 to ask at once, -1 if unknown."""
    if retry_us == 0:
        return 0.0
    interval = min(MAX_POLL_S, HEAD_POLL_S + POLL_STAGGER_S * position)
    return interval if retry_us < 0 else min(interval, retry_us / 1e6 + EXPIRY_SLACK_S + EXPIRY_STAGGER_S * position)
