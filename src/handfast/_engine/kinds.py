"""The kinds of objects: one table of what each is, which all read that have to know every kind.

A kind is a word in the keys of its names. Public names, rights, the names that `ls` finds, tests, mutants and the index of
the documentation follow from its row.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KINDS", "ObjectKind"]


class ObjectKind(NamedTuple):
    """What an object is."""

    scripts: str
    """What the names of its scripts begin with."""
    limit: int | None = None
    """How many permits a name has, of a kind with leases; 0 where each request brings its own."""


KINDS: dict[str, ObjectKind] = {
    "lock": ObjectKind("permit", 1),
    "semaphore": ObjectKind("permit", 0),
    "rwlock": ObjectKind("permit", 1_000_000_000),
    "once": ObjectKind("once", 1),
    "limiter": ObjectKind("limit"),
    "debounce": ObjectKind("debounce"),
    "autocomplete": ObjectKind("names"),
    "scores": ObjectKind("scores"),
}
"""Each kind, by the word in its keys."""
