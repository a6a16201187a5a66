"""Records of holders, waiters, limits and other state, as Handfast returns them.

They are frozen dataclasses with the server's state at one instant. They can be compared, pickled and passed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from handfast._amounts import amount_text
from handfast._kinds import MAX_PERMITS
from handfast._naming import name_publicly
from handfast.arguments import Duration, Kind

__all__ = [
    "Advance",
    "AuditEntry",
    "BudgetStatus",
    "DebounceStatus",
    "Hold",
    "Holder",
    "LatchStatus",
    "Leader",
    "LimiterStatus",
    "LockStatus",
    "Member",
    "NameStatus",
    "OnceStatus",
    "OperatorAction",
    "Rate",
    "RateStatus",
    "Scored",
    "ServerFinding",
    "Term",
    "Waiter",
]


NAMED = 3
"""How many holders the text of a status names."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One lease of a name, as known to the server.

    Attributes:
        token: The first characters of the lease's token. The whole token is a secret: it is the right to release.
        fence: The fencing token of the lease; see `Lease.fence`.
        weight: How many permits the lease has.
        remaining: Seconds until the lease ends unless it is renewed.
        held_for: Seconds since the lease was granted.
        label: The label of the holder's client, by default the host name and process id.
        exclusive: True if the lease has all permits: the holder of a lock, the writer of a read-write lock.
        owner: Who acquired it, ``<client>.<thread or task>``: the client's unique id, and the native id of the thread, or
            in asyncio a number of the task. Leases and requests with the same owner belong to the same thread or task.
        released: True if the holder has released it, and the name stays taken for the rest of the lease's ``at_least``.
        lock_all: True if it was acquired by `lock_all`, together with other names.
        value: Data shown to others by the holder, as the ``value`` of an election; without it the empty text.
        slot: The holder's number from `SemaphoreLease.slot`; None without one.
        wanted: Seconds until the lease is revoked, since a later request has asked the holder to end; None without such a
            request.
        ttl: The length of the lease in seconds, as requested by the holder: the remaining time right after a renewal.
            An `at_least` and later calls of ``extend`` are left out.
    """

    token: str
    fence: int
    weight: int
    remaining: float
    held_for: float
    label: str
    exclusive: bool
    owner: str
    released: bool
    lock_all: bool
    value: str = ""
    slot: int | None = None
    wanted: float | None = None
    ttl: float = 30.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request in the queue of a name.

    Attributes:
        token: The first characters of the request's token.
        weight: How many permits it requests.
        position: The place in the queue; 0 is next.
        waited_for: Seconds since it joined the queue.
        label: The label of the waiting client, by default the host name and process id.
        exclusive: True if it requests all permits: a waiter for a lock, a writer.
        owner: Who requests it; see `Holder.owner`.
        lock_all: True if it is requested by `lock_all`, together with other names.
        value: Data shown to others; see `Holder.value`.
        head_start: Seconds by which the request counts as earlier than it joined; 1,000 days for a preempting request.
        silent_for: Seconds since the client was last heard of. A live waiter asks every 20 s or more often. After 60 s of
            silence it counts as gone, and is not listed any more.
    """

    token: str
    weight: int
    position: int
    waited_for: float
    label: str
    exclusive: bool
    owner: str
    lock_all: bool
    value: str = ""
    head_start: float = 0.0
    silent_for: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A lease was taken away by force, a limit or rates were set, or a limiter was paused.

    Attributes:
        at: When, on the server's clock.
        what: ``force_release``, ``resize``, ``pause``, ``resume``, ``hold``, ``unhold``, or ``preempt`` for a lease taken by
            a later request.
        by: The label of the client that acted.
        why: The reason; of a `Limiter.pause` without a reason, the seconds. For a ``resize`` of permits, the new limit, or 0
            if each client brings its own again. For a ``resize`` of rates, the new rates (no text if each client brings its
            own again), then ``: `` and the reason if there is one.
    """

    at: datetime
    what: str
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """An operator's hold on a name: holders go on, and no other client gets in; see `Handfast.hold`.

    Attributes:
        until: When it ends, on the server's clock.
        remaining: Seconds until then.
        by: The label of the client that set it.
        reason: Why.
    """

    until: datetime
    remaining: float
    by: str
    reason: str

    def __str__(self) -> str:
        """Return a text for a log: ``on hold until 2026-11-27 14:00:00 UTC by ops@bastion: DB migration``."""
        return f"on hold until {self.until:%Y-%m-%d %H:%M:%S} UTC by {self.by}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LockStatus:
    """Holders and waiters of a name at one instant of the server.

    Attributes:
        holders: The leases, at most 100: the first to end.
        waiters: The first 100 requests of the queue.
        fence: The fencing token of the latest grant; 0 if the server remembers none.
        holding: Number of all leases.
        waiting: Length of the whole queue.
        limit: Number of permits: 1 for a lock, 1,000,000,000 for a read-write lock, of which a reader takes 1.
        free: Permits that a request could have now; 0 with a hold, or if the server has evicted the keys with the state.
        grants: How many grants the server remembers. Like `waited`, it starts at 0 again after the name was idle for an
            hour, or when the server has lost the keys.
        waited: Seconds that all granted requests had waited for the name, added up.
        last: The last action of an operator, if the server remembers it; None otherwise.
        granted_ago: Seconds since the latest grant; None if the server remembers none. An idle name is remembered for an
            hour.
        hold: An operator's hold; None without one. A hold is not listed among the holders.
        held: Permits of all holders, at most `limit`; `limit` if the server has evicted the keys with the state.
    """

    holders: tuple[Holder, ...]
    waiters: tuple[Waiter, ...]
    fence: int
    holding: int
    waiting: int
    limit: int
    free: int
    grants: int
    waited: float
    last: OperatorAction | None
    granted_ago: float | None = None
    hold: Hold | None = None
    held: int = 0

    def __str__(self) -> str:
        """Return a line for a log: ``held by web-3:4711 for 12.0 s; 2 waiting``.

        Of a semaphore: ``1 of 2 permits held, by web-3:4711 for 12.0 s; 0 waiting``.
        """
        first = sorted(self.holders, key=lambda holder: -holder.held_for)[:NAMED]
        names = [f"{one.label} for {one.held_for:.1f} s" for one in first]
        names += [f"{self.holding - len(first):,} more"] * (self.holding > len(first))
        if 1 < self.limit < MAX_PERMITS:
            held = f"{self.held:,} of {self.limit:,} permits held{', by ' * bool(names)}"
        else:
            held = "held by " if names else "not held"
        on_hold = "" if self.hold is None else f"; {self.hold}"
        return f"{held}{', '.join(names)}; {self.waiting:,} waiting{on_hold}"


@dataclass(frozen=True, slots=True)
class NameStatus:
    """A name known to the server, and the status of the name.

    Attributes:
        kind: The kind of the name.
        name: The name.
        status: Holders and waiters. Of an idle semaphore whose limit no operator has set, the server does not know the
            limit: it is 0. While leases or requests are listed it is the largest limit among theirs. Limiters, budgets,
            debounced names and latches each have a status of their own kind.
        recorded: The record of a key of `once`; None without a record, or if `names` was not asked for records.
    """

    kind: Kind
    name: str
    status: LockStatus | LimiterStatus | BudgetStatus | DebounceStatus | LatchStatus
    recorded: OnceStatus | None = None

    def __str__(self) -> str:
        """Return a line for a log: ``lock 'a': not held; 0 waiting``."""
        return f"{self.kind} {self.name!r}: {self.recorded or self.status}"


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """A single finding of `Handfast.check_server`.

    Attributes:
        severity: ``"ok"``; ``"info"``, which is good to know; ``"warning"``: a restart or a failover may lose a lease or grant
            it twice, or a limit is near; ``"failure"``: this server grants nothing, or it may evict leases that are held.
        topic: The subject, in a single word that never changes, such as ``"eviction"``.
        text: The finding: the harm, and after a colon the cause.
        advice: What to do; empty if there is nothing to do.
        command: The command to the server for the change; empty if there is none.
    """

    severity: Literal["ok", "info", "warning", "failure"]
    topic: str
    text: str
    advice: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A single action of an operator.

    Attributes:
        id: Identifies the entry. Later entries have larger ids.
        at: When it was written, by the server's clock, in UTC.
        what: The action: ``"release"``, ``"hold"``, ``"unhold"``, ``"pause"``, ``"resume"``, ``"resize"``, ``"reset"``,
            ``"raise"`` or ``"forget"``, or the text written by a program of yours.
        kind: The kind of the name.
        name: The name; of a key, ``name|key``.
        by: The label of the client that acted.
        why: The reason.
        count: How many leases it concerned; None where a count says nothing.
        fence: Up to which fence leases were taken, or with ``single`` the fence of the lease; None where none were.
        rates: The new rates, as text, or the new limit of a budget; empty where each client brings its own again, None
            where none were set.
        permits: The new limit; None where none was set.
        duration: For how many seconds a name was put on hold or paused; None where it was not.
        now: Whether the holders were asked to end.
        single: Whether only the lease with this fence was taken.
    """

    id: str
    at: datetime
    what: str
    kind: str
    name: str
    by: str
    why: str
    count: int | None = None
    fence: int | None = None
    rates: str | None = None
    permits: int | None = None
    duration: float | None = None
    now: bool = False
    single: bool = False

    def __str__(self) -> str:
        """Return a line for a log: ``2026-11-28 03:00:00 UTC: hold lock 'a' for 60 s by ann@web-1: hangs``."""
        words = [self.what, self.kind, repr(self.name)]
        if self.rates is not None:
            words.append(f"to {self.rates or 'what each client brings'}")
        if self.permits is not None:
            words.append(f"to {self.permits:,} permit{'s' * (self.permits != 1)}")
        if self.duration is not None:
            words.append(f"for {self.duration:,g} s")
        if self.now:
            words.append("now")
        if self.single:
            words.append(f"with fence {self.fence}")
        return f"{self.at:%Y-%m-%d %H:%M:%S} UTC: {' '.join(words)} by {self.by}: {self.why}"


@dataclass(frozen=True, slots=True)
class Rate:
    """A limiter's rate: at every moment, admissions within the last ``per`` cost at most ``limit``.

    Attributes:
        limit: From 1 to 1,000,000,000.
        per: The period: seconds (a number or a timedelta) from 0.001 s to 31 days, rounded up to whole milliseconds.
    """

    limit: int
    per: Duration


@dataclass(frozen=True, slots=True)
class RateStatus:
    """How much is left under one rate.

    Attributes:
        limit: The cost that may be admitted within a period. In `NameStatus` 0 where the server does not know it: clients
            bring their own rates, and no one waits.
        per: The period, in seconds.
        used: The cost admitted within the last period. More than `limit` after `Admission.settle` with a larger cost,
            after a `Limiter.resize` to less, and where a limiter does not enforce its rates.
        remaining: The cost that would be admitted now, if no one waited.
        reset_after: Seconds until nothing is used, if there are no more admissions.
        metric: The unit of the cost, such as ``tokens``; empty for a limiter without metrics.
    """

    limit: int
    per: float
    used: int
    remaining: int
    reset_after: float
    metric: str = ""

    def __str__(self) -> str:
        """Return it as a part of a line: ``2 of 5 used in 60 s``, ``900 of 1,000 tokens used in 60 s``."""
        of, what = f" of {self.limit:,}" if self.limit else "", f" {self.metric}" if self.metric else ""
        return f"{self.used:,}{of}{what} used in {self.per:,g} s"


@dataclass(frozen=True, slots=True)
class LimiterStatus:
    """How full a limiter is, at one instant of the server.

    Attributes:
        rates: The rates in force, by metric the shortest period first: those of a `Limiter.resize`, or the client's.
        waiting: Length of the queue.
        paused_for: Seconds without admissions, after a `Limiter.pause`; 0 without one.
        last: The last `Limiter.resize`, `Limiter.pause` or `Limiter.resume`, if the server remembers it; None otherwise.
            A pause is remembered for a second more than it lasts, and the removal of rates for an hour.
        longest_wait: Seconds for which the first of the queue has waited; None if no one waits.
        paused_until: When the pause ends, by the server's clock, in UTC; None without one.
    """

    rates: tuple[RateStatus, ...]
    waiting: int
    paused_for: float = 0.0
    last: OperatorAction | None = None
    longest_wait: float | None = None
    paused_until: datetime | None = None

    def __str__(self) -> str:
        """Return a line for a log: ``2 of 5 used in 60 s; 0 waiting; paused for 12.0 s by web-3:4711``."""
        by = f" by {self.last.by}" if self.last is not None and self.last.what == "pause" else ""
        pause = f"; paused for {self.paused_for:,.1f} s{by}" if self.paused_for else ""
        return f"{', '.join(map(str, self.rates))}; {self.waiting:,} waiting{pause}"


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """How much of a budget is spent, at one instant of the server.

    Attributes:
        spent: The sum of this period's settlements.
        held: The sum held by calls that go on, or were never settled. It counts against the limit, too.
        limit: The most that may be spent and held in a period: as set by `Budget.set_limit`, or else the client's own; in
            `NameStatus` the limit of the client with the latest reservation.
        resets_at: When the next period begins, in UTC; None for a budget in total, or where this machine does not know the
            time zone.
        resets_in: Seconds until then; None where there is none.
        was: The spent and held sum of the period before; 0 if nothing was reserved in it.
        period: ``"day"``, ``"week"``, ``"month"``, ``"quarter"``, ``"year"`` or ``"total"``.
        zone: The time zone in whose midnight a period begins.
        begins: Where a period begins, as for the client's ``budget()``.
        is_set: Whether the limit was set for all clients.
        last: The last `Budget.set_limit` or `Budget.at_least_spent`; None if there was none.
    """

    spent: Decimal
    held: Decimal
    limit: Decimal
    resets_at: datetime | None
    resets_in: float | None
    was: Decimal
    period: str
    zone: str = "UTC"
    begins: int = 1
    is_set: bool = False
    last: OperatorAction | None = None

    @property
    def remaining(self) -> Decimal:
        """The amount free to be reserved now."""
        return max(self.limit - self.spent - self.held, Decimal())

    def __str__(self) -> str:
        """Return a line for a log: ``37.20 of 100 spent, 0.42 held; resets at 2026-12-01 00:00:00 UTC``."""
        held = f", {amount_text(self.held)} held" if self.held else ""
        resets = "" if self.resets_at is None else f"; resets at {self.resets_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"{amount_text(self.spent)} of {amount_text(self.limit)} spent{held}{resets}"


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of an election, at an instant of the server.

    Attributes:
        value: The leader's ``value``, such as an address; without it the empty text.
        label: The label of the leader's client, by default the host name and process id.
        fence: The fencing token of the term; see `Lease.fence`.
        led_for: Seconds since it was elected.
        remaining: Seconds until the lease ends unless it is renewed.
        transitions: How many terms there were, including the present. It starts at 1 again when no one led for an hour, or
            when the server has lost the keys.
        candidates: How many candidates wait.
    """

    value: str
    label: str
    fence: int
    led_for: float
    remaining: float
    transitions: int
    candidates: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, at an instant of the server.

    Attributes:
        value: The text shown to others.
        label: The label of the member's client, by default the host name and process id.
        fence: The fencing token of the lease: unique among the members, and larger for a later member.
        joined_for: Seconds since it joined.
        remaining: Seconds until the lease ends unless it is renewed.
    """

    value: str
    label: str
    fence: int
    joined_for: float
    remaining: float


@dataclass(frozen=True, slots=True)
class Term:
    """A term of an election, as the leader announced it.

    Attributes:
        value: The ``value`` of the leader's election.
        label: The label of the leader's client.
        fence: The fencing token of the term; see `Lease.fence`.
        began: When it began, on the server's clock.
        ended: When the end was announced; None while the term lasts, and where the leader died.
        why: ``resigned``, or why the lease was lost, as LeaseLost says it; None without an announced end.
    """

    value: str
    label: str
    fence: int
    began: datetime
    ended: datetime | None
    why: str | None


@dataclass(frozen=True, slots=True)
class LatchStatus:
    """The parts of a latch that are done, at an instant of the server.

    Attributes:
        done: The parts done, in the order in which they were done; at most the first 1,000.
        left: The number of parts still to be done; 0 if the latch is open. None in `NameStatus`: only clients know how
            many a latch has.
        waiting: The number of waiting threads, and of event loops with waiting tasks. After giving up or dying, a caller
            counts for up to 15 seconds.
        number: How many parts are done.
        changed_at: When the last part was done, by the server's clock, in UTC; None if no part is.
    """

    done: tuple[str, ...]
    left: int | None
    waiting: int
    number: int = 0
    changed_at: datetime | None = None

    def __str__(self) -> str:
        """Return a line for a log: ``5 to be done; 2 waiting``."""
        if self.left is None:
            return f"{self.number:,} done; {self.waiting:,} waiting"
        return f"{f'{self.left:,} to be done' if self.left else 'open'}; {self.waiting:,} waiting"


@dataclass(frozen=True, slots=True)
class DebounceStatus:
    """How far a burst of calls of a debounced name is, at an instant of the server.

    Attributes:
        waiting: 1 while a call waits for its time, else 0.
        burst_for: Seconds since the first call of the burst; None if no call waits.
        due_in: Seconds until the newest call runs, if no other comes; None if no call waits.
        items: The items not yet done by a run; see `Debounce.collect`.
    """

    waiting: int
    burst_for: float | None
    due_in: float | None
    items: int

    def __str__(self) -> str:
        """Return a line for a log: ``due in 3.2 s, calls for 40.0 s; 2 items``."""
        due = (
            "no call waits" if self.due_in is None else f"due in {self.due_in:.1f} s, calls for {self.burst_for:.1f} s"
        )
        return f"{due}; {self.items:,} item{'s' * (self.items != 1)}"


@dataclass(frozen=True, slots=True)
class OnceStatus:
    """How far a key of `Once` has come.

    Attributes:
        state: ``"idle"``: nothing is recorded, and no one runs it; ``"running"``; ``"done"``, also while it is made
            anew; ``"failed"``, ``"begun"`` or ``"unstored"``, as `NotCompleted` has them.
        age: Seconds since this state was recorded; None if nothing is.
        held_by: Who runs it; None if no one does.
        waiting: How many requests wait for it.
    """

    state: Literal["idle", "running", "done", "failed", "begun", "unstored"]
    age: float | None
    held_by: Holder | None
    waiting: int

    def __str__(self) -> str:
        """Return a line for a log: ``done 34.0 s ago; 0 waiting``."""
        ago = f"{self.age or 0:,.1f} s ago"
        said = {
            "idle": ["not recorded"],
            "running": [],
            "done": [f"done {ago}"],
            "failed": [f"failed {ago}"],
            "begun": [f"began {ago} and did not end"],
            "unstored": [f"done {ago}, and its result could not be stored"],
        }[self.state]
        if self.held_by is not None:
            said.append(f"run by {self.held_by.label} for {self.held_by.held_for:,.1f} s")
        return "; ".join([*said, f"{self.waiting:,} waiting"])


@dataclass(frozen=True, slots=True)
class Advance:
    """Result of `Scores.advance`. Each member of the call is counted once.

    Attributes:
        added: Members not there before.
        moved: Members with a smaller score before.
        stale: Members with this score or a larger one, which they kept.
    """

    added: int
    moved: int
    stale: int


@dataclass(frozen=True, slots=True)
class Scored:
    """A member of `Scores` and its score.

    Attributes:
        member: The member.
        score: The member's score.
    """

    member: str
    score: float


name_publicly(globals(), "handfast")
