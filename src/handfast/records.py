"""What is told about a name: frozen records, to be read and passed on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Advance", "Holder", "LockStatus", "Scored", "Waiter"]


@dataclass(frozen=True, slots=True)
class Holder:
    """One lease, as the server sees it. ``token`` is cut short: a whole one is the right to release."""

    token: str
    fence: int
    weight: int
    remaining: float
    """Seconds until the lease ends unless it is renewed."""
    held_for: float
    """Seconds since the grant."""
    label: str
    exclusive: bool
    """Whether it has all permits that there are: the holder of a lock, the writer of a read-write lock."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request that stands in line."""

    token: str
    weight: int
    position: int
    """0 is next."""
    waited_for: float
    """Seconds since it took its place."""
    label: str
    exclusive: bool
    """Whether it wants all permits that there are: a lock, or to write."""


@dataclass(frozen=True, slots=True)
class LockStatus:
    """Who holds a name and who waits for it, at one instant of the server."""

    holders: tuple[Holder, ...]
    """The 100 whose leases end first."""
    waiters: tuple[Waiter, ...]
    """The first 100 of the line."""
    fence: int
    """The fence of the latest grant; 0 if none is remembered."""
    waiting: int
    """How many wait in all."""
    limit: int
    """How many permits there are: 1 for a lock, a billion for a read-write lock, of which a reader takes one."""
    free: int
    """How many of them nobody holds; 0 also where that is not known any more (after an eviction)."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What came of moving members forward: each of them is counted once."""

    added: int
    """Were not there before."""
    moved: int
    """Had a smaller score."""
    stale: int
    """Had that score already, or a larger one, and stayed."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A member and its score."""

    member: str
    score: float
