"""The table of object kinds.

The kind is a word in every key of an object. Public names, the rights of a user, the names found by `handfast ls`, tests
of every kind and the suites of mutants are derived from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["AUDIT", "KINDS", "MAX_PERMITS", "MAX_SLOTS", "ObjectKind", "public_names"]

MAX_PERMITS = 1_000_000_000
"""The largest limit of a name, and the limit of every read-write lock: a reader takes a permit, a writer all."""

AUDIT = "audit"
"""The word in the key of what operators did, which is no name."""

MAX_SLOTS = 1024
"""How many numbers of their own the holders of a semaphore can have at most, as in ``permit_slot.lua``."""


class ObjectKind(NamedTuple):
    """A kind of object."""

    modules: Mapping[str, tuple[str, ...]]
    """The modules of an API, and the classes of each as the sync API calls them."""
    scripts: str
    """The prefix of the scripts' names, without the underscore."""
    commands: tuple[str, ...] = ()
    """Commands that the client sends outside of scripts."""
    records: tuple[str, ...] = ()
    """The classes in `handfast.records` that methods return."""
    limit: int | None = None
    """The permits of a name, for kinds with leases; 0 where requests bring the number. None for kinds without leases."""
    parts: tuple[str, ...] = ("state",)
    """The keys of a name by which `Handfast.names` finds it; ``window`` stands for one with a number behind it."""
    reads: str = ""
    """Of a listed kind without leases, the module in `handfast._protocol` whose function ``found`` makes its status."""
    has_layouts: bool = True
    """Whether what is stored may change its layout: sorted sets of members, and numbers, do not."""
    has_keys: bool = False
    """Whether a name may have parts behind it, as ``keyed()`` takes them."""
    is_one_slot: bool = False
    """Whether all parts of a name are in one slot of a cluster, so that a script may change several: they stand at the end of a key."""


KINDS: Mapping[str, ObjectKind] = {
    "lock": ObjectKind(
        {
            "lock": ("Lock",),
            "lease": ("Lease",),
            "rlock": ("RLock", "RLease"),
            "lock_all": ("LockAll", "LeaseOfAll"),
            "together": ("Together", "Held"),
        },
        "permit",
        records=("Hold", "Holder", "LockStatus", "NameStatus", "OperatorAction", "Waiter"),
        limit=1,
    ),
    "semaphore": ObjectKind({"semaphore": ("Semaphore", "SemaphoreLease")}, "permit", limit=0),
    "rwlock": ObjectKind({"rwlock": ("RWLock", "ReadLock", "WriteLock", "RWLease")}, "permit", limit=MAX_PERMITS),
    "election": ObjectKind(
        {"election": ("Election", "Leadership")}, "election", commands=("hgetall",), records=("Leader", "Term"), limit=1
    ),
    "group": ObjectKind({"group": ("Group", "Membership")}, "group", records=("Member",), limit=MAX_PERMITS),
    "partition": ObjectKind(
        {"partition": ("Partition", "Assignment"), "items": ("Change", "ItemLease")},
        "group",
        records=("Member",),
        limit=0,
        has_keys=True,
    ),
    "once": ObjectKind({"once": ("Once",), "run": ("Run",)}, "once", records=("OnceStatus",), limit=1, has_keys=True),
    "limiter": ObjectKind(
        {"limiter": ("Limiter", "Admission"), "metric_limiter": ("MetricLimiter", "MetricAdmission")},
        "limit",
        commands=("set",),
        records=("LimiterStatus", "Rate", "RateStatus"),
        parts=("queue", "settings", "window"),
        reads="limiting",
        has_keys=True,
    ),
    "debounce": ObjectKind(
        {"debounce": ("Debounce",)},
        "debounce",
        records=("DebounceStatus",),
        parts=("burst", "items"),
        reads="debouncing",
        has_keys=True,
    ),
    "budget": ObjectKind(
        {"budget": ("Budget", "BudgetOfAll", "Reservation")},
        "budget",
        commands=("del",),
        records=("BudgetStatus",),
        parts=("account",),
        reads="budgeting",
        has_keys=True,
        is_one_slot=True,
    ),
    "latch": ObjectKind(
        {"latch": ("Latch",)},
        "latch",
        commands=("del",),
        records=("LatchStatus",),
        parts=("parts", "watchers"),
        reads="latching",
        has_layouts=False,
        has_keys=True,
    ),
    "autocomplete": ObjectKind(
        {"autocomplete": ("Autocomplete",)},
        "names",
        commands=("unlink", "zadd", "zcard", "zrangebylex", "zrem"),
        parts=(),
        has_layouts=False,
        has_keys=True,
    ),
    "scores": ObjectKind(
        {"scores": ("Scores",)},
        "scores",
        commands=("unlink", "zcard", "zrange", "zrangebyscore", "zrem", "zrevrange"),
        records=("Advance", "Scored"),
        parts=(),
        has_layouts=False,
        has_keys=True,
    ),
}
"""By the word in the keys."""


def public_names() -> dict[str, str]:
    """Return the module of each public class of an object, in both APIs."""
    return {name: "handfast.records" for kind in KINDS.values() for name in kind.records} | {
        prefix + name: f"handfast._api.{api}.{module}"
        for api, prefix in (("sync", ""), ("aio", "Async"))
        for kind in KINDS.values()
        for module, names in kind.modules.items()
        for name in names
    }
