"""The parts of a plan: clients, the orders of their callers, and faults."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from handfast._engine.calls import PARTS
from handfast._engine.defaults import DEFAULT_MAX_WAITERS
from handfast._engine.keys import KeySet
from handfast._engine.limits import Limit

__all__ = ["ClientPlan", "Order", "Plan", "Recording", "Target", "tag"]


class Recording(NamedTuple):
    """What a caller makes a key of `once` with."""

    keep_ms: int
    refresh_ms: int = 0
    """0 for a record that is not made anew."""
    keep_failure_ms: int = 0
    """0 for failures that are not remembered."""
    reruns: bool = True
    waits: bool = True
    fingerprint: str = ""


class _Target(NamedTuple):
    kind: str
    """``lock``, ``semaphore``, ``read``, ``write``, ``all`` for several locks at once, ``limiter``, ``budget``, ``debounce``, ``latch``,
    ``election``, ``group``, ``partition`` or ``once``."""
    names: tuple[str, ...]
    ttl_ms: int
    renew: bool
    on_lost: str
    limit: int = 1
    weight: int = 1
    """The number of permits, or the cost of a call of a limiter."""
    yields: bool = True
    """Whether a holder ends when a later request asks it to."""
    at_least_ms: int = 0
    """For how long a lock stays taken since its grant; 0 for no longer than its lease."""
    replicas: int = 0
    """How many replicas must have a grant or a renewal before it counts."""
    replica_timeout: float = 0.0
    """For how many seconds the server waits for them."""
    rates: tuple[Limit, ...] = ()
    """Of a limiter."""
    costs: tuple[tuple[str, int], ...] = ()
    """What a call of a limiter with metrics costs in each."""
    max_waiters: int = DEFAULT_MAX_WAITERS
    """Of a limiter and of a key of `once`, how many may wait."""
    recording: Recording | None = None
    """Of a key of `once`."""
    accounts: tuple[str, ...] = ()
    """The keys of a budget in which an amount is held; the empty text stands for the budget without a key."""
    period_ms: int = 0
    """Of a budget."""


class Target(_Target):
    """The primitive and the settings of an order."""

    @property
    def name(self) -> str:
        """The names, as a text."""
        return ", ".join(self.names)

    @cached_property
    def tags(self) -> list[bytes]:
        """The common part of the keys of each name."""
        return [tag(self.kind, name).encode() for name in self.names]


class Order(NamedTuple):
    """One operation of a caller."""

    verb: str
    """``acquire``, ``try``, ``preempt``, ``replace``, ``revoke``, ``hold``, ``unhold``, ``resize``, ``pause``, ``status``,
    ``forget``, ``wait``, ``collect``, ``done``, ``observe``, ``work``, ``reserve``, ``limit``, ``spent`` or ``close``."""
    target: Target
    pause: float
    """Seconds before the operation."""
    timeout: float | None = None
    """In seconds; of a debounced ``wait`` or ``collect``, the longest burst; of ``done``, the number of the part."""
    hold: float = 0.0
    """For how long it holds what it gets, in seconds; of a ``wait`` or ``collect``, for how long it has to be quiet."""
    block: float = 0.0
    """Seconds for which the caller blocks its event loop as soon as it has the lease; of a ``pause`` or
    a ``resize`` of a limiter, after which it is ended, or 0 if it is not; of a ``collect``, for which its run lasts."""
    extend_ms: int = 0
    """A ttl to extend the lease to while it is held; 0 for none."""
    downgrade: bool = False
    """Whether a writer becomes a reader."""
    single: bool = False
    """Of a ``revoke``, whether it takes the lease of one holder only."""
    end: str = "release"
    """``release``, ``drop`` for a lease that is never released, or ``fail`` for a scope that ends with an exception. A
    run of `once` ends with ``finish``, too, or with ``unstorable`` where its result can't be stored; at ``release`` its
    scope ends without a result.
    """
    in_scope: bool = True
    """Whether the lease is held in an ``async with``, or released by a call."""
    cancel_after: float | None = None
    """Seconds after its start at which it is cancelled, if it is still running."""
    cancel_at: int = 0
    """The number of the await that ends together with a cancellation; 0 for none."""
    limit: int = 0
    """For ``resize``; 0 restores the limits of the requests. Of a ``collect``, the most items of a run."""
    rates: tuple[Limit, ...] = ()
    """What a limiter's rates are set to."""
    slot: int | None = None
    """The number that a holder of a semaphore asks for."""
    head_start: int = 0
    """Seconds by which an ``acquire`` counts as earlier than it came."""
    grace: float = 0.0
    """Of a ``preempt``, the seconds that it leaves the holder; of a ``collect``, those for which its run has its items."""
    settles: tuple[int, ...] = ()
    """What an admission of a limiter is settled with, after ``hold`` seconds each."""


class ClientPlan(NamedTuple):
    """One client."""

    response_timeout: float
    offset: float
    lagging: float
    """The share of turns of its event loop before which time passes."""
    callers: list[list[Order]]


class Plan(NamedTuple):
    """The schedule of one seed."""

    kind: str
    names: tuple[str, ...]
    tags: tuple[str, ...]
    clients: list[ClientPlan]
    tempo: float
    faults: tuple[str, ...]
    rate: float
    most_faults: int
    quiet_at: float
    """When faults end at the latest."""
    scripts_known: bool
    """Whether the server knows all scripts from the beginning."""
    uniform: bool
    """Whether all callers pass the same limit for each name, and it is never resized."""
    rests: bool = False
    """Whether locks stay taken after their release: then a history does not show why the next one waits."""
    overtakes: bool = False
    """Whether requests preempt or replace others: then leases end, and requests leave the queue, by the calls of others."""
    calm: bool = False
    """Whether there are no faults and no blocked event loops, so that messages come in time."""
    replicas: int = 0
    """How many replicas there are that have only what has reached them."""
    setting: str = "server"
    """What there is of servers: see `handfast_lab.simulator.faults.SETTINGS`."""
    parts: tuple[str, ...] = PARTS
    """What the keys of each name end with."""
    rates: dict[str, tuple[Limit, ...]] = {}  # noqa: RUF012 -- no plan changes it
    """The rates of each limiter, if all callers pass the same."""
    records_last: bool = False
    """Whether the records of keys of `once` outlast the plan, and none is made anew."""


def tag(kind: str, name: str) -> str:
    """Return the common part of the keys of a name."""
    kinds = {"all": "lock", "lock_all": "lock", "read": "rwlock", "write": "rwlock"}
    name, *parts = name.split("|")
    return KeySet("hf", kinds.get(kind, kind), name, tuple(parts)).tag
