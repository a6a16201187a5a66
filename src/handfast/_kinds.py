"""The kinds of objects: one table of what each is, which all read that have to know every kind.

A kind is a word in the keys of its names. From its row follow the public names, the rights of a user, the names that
`handfast ls` finds, and what tests and mutants ask of every kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["KINDS", "ObjectKind", "public_names"]


class ObjectKind(NamedTuple):
    """What an object is."""

    modules: Mapping[str, tuple[str, ...]]
    """The modules of an API, and the classes of each as the sync API calls them."""
    scripts: str
    """What the names of its scripts begin with."""
    commands: tuple[str, ...] = ()
    """The commands that it sends outside of scripts."""
    records: tuple[str, ...] = ()
    """The classes in `handfast.records` that its methods return."""
    limit: int | None = None
    """How many permits a name has, of a kind with leases; 0 where each request brings its own."""


KINDS: Mapping[str, ObjectKind] = {
    "lock": ObjectKind(
        {
            "lock": ("Lock",),
            "lease": ("Lease",),
            "rlock": ("RLock", "RLease"),
            "lock_all": ("LockAll", "LeaseOfAll"),
        },
        "permit",
        records=("Holder", "LockStatus", "NameStatus", "OperatorAction", "Waiter"),
        limit=1,
    ),
    "semaphore": ObjectKind({"semaphore": ("Semaphore",)}, "permit", limit=0),
    "rwlock": ObjectKind({"rwlock": ("RWLock", "ReadLock", "WriteLock", "RWLease")}, "permit", limit=1_000_000_000),
    "once": ObjectKind({"once": ("Once",), "run": ("Run",)}, "once", records=("OnceStatus",), limit=1),
    "limiter": ObjectKind(
        {"limiter": ("Limiter", "Admission")}, "limit", records=("LimiterStatus", "Rate", "RateStatus")
    ),
    "debounce": ObjectKind({"debounce": ("Debounce",)}, "debounce"),
    "latch": ObjectKind({"latch": ("Latch",)}, "latch", commands=("del",), records=("LatchStatus",)),
    "autocomplete": ObjectKind(
        {"autocomplete": ("Autocomplete",)}, "names", commands=("unlink", "zadd", "zcard", "zrangebylex", "zrem")
    ),
    "scores": ObjectKind(
        {"scores": ("Scores",)},
        "scores",
        commands=("unlink", "zcard", "zrange", "zrangebyscore", "zrem", "zrevrange"),
        records=("Advance", "Scored"),
    ),
}
"""Each kind, by the word in its keys."""


def public_names() -> dict[str, str]:
    """Return the module of each public class that belongs to an object, of both APIs."""
    return {name: "handfast.records" for kind in KINDS.values() for name in kind.records} | {
        prefix + name: f"handfast._api.{api}.{module}"
        for api, prefix in (("sync", ""), ("aio", "Async"))
        for kind in KINDS.values()
        for module, names in kind.modules.items()
        for name in names
    }
