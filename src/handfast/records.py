"""Records that Handfast returns.

They are frozen dataclasses: what the server said at one instant. They can be compared, pickled and passed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from handfast._naming import name_publicly

__all__ = ["Advance", "Holder", "LockStatus", "OperatorAction", "Scored", "Waiter"]


@dataclass(frozen=True, slots=True)
class Holder:
    """One lease of a name, as the server has it.

    Attributes:
        token: The first characters of the lease's token. The whole token is a secret: it is the right to release.
        fence: The fencing token of the lease; see `Lease.fence`.
        weight: How many permits the lease has.
        remaining: Seconds until the lease ends unless it is renewed.
        held_for: Seconds since the lease was granted.
        label: The label of the client that holds it, by default its host name and process id.
        exclusive: True if the lease has all permits: the holder of a lock, the writer of a read-write lock.
        owner: Who acquired it, ``<client>.<thread or task>``: the id of a client, which no two have, and the native id of the
            thread, or in asyncio a number of the task. Leases and requests with the same owner are of one thread or task.
    """

    token: str
    fence: int
    weight: int
    remaining: float
    held_for: float
    label: str
    exclusive: bool
    owner: str


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request in the queue of a name.

    Attributes:
        token: The first characters of the request's token.
        weight: How many permits it requests.
        position: Its place in the queue; 0 is next.
        waited_for: Seconds since it joined the queue.
        label: The label of the client that waits, by default its host name and process id.
        exclusive: True if it requests all permits: a waiter for a lock, a writer.
        owner: Who requests it; see `Holder.owner`.
    """

    token: str
    weight: int
    position: int
    waited_for: float
    label: str
    exclusive: bool
    owner: str


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A lease was taken away by force, or a limit was set.

    Attributes:
        at: When, on the server's clock.
        what: ``force_release`` or ``resize``.
        by: The label of the client that did it.
        why: The reason of a ``force_release``; the new limit of a ``resize``, 0 where it let each client bring its own again.
    """

    at: datetime
    what: str
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class LockStatus:
    """Holders and waiters of a name at one instant of the server.

    Attributes:
        holders: The leases, at most 100 of them: those that end first.
        waiters: The first 100 requests of the queue.
        fence: The fencing token of the latest grant; 0 if the server remembers none.
        waiting: Length of the whole queue.
        limit: Number of permits: 1 for a lock, 1,000,000,000 for a read-write lock, of which a reader takes one.
        free: Permits that are not held; 0 also if the server has evicted the keys that would tell.
        grants: How many grants the server remembers. Like `waited`, it starts at 0 again when the name was idle for an hour, or
            when the server has lost its keys.
        waited: How long those who were granted had waited for it, in seconds, all together.
        last: The last action of an operator that the server remembers; None if there is none.
    """

    holders: tuple[Holder, ...]
    waiters: tuple[Waiter, ...]
    fence: int
    waiting: int
    limit: int
    free: int
    grants: int
    waited: float
    last: OperatorAction | None


@dataclass(frozen=True, slots=True)
class Advance:
    """Result of `Scores.advance`. Each member of the call is counted once.

    Attributes:
        added: Members that were not there before.
        moved: Members that had a smaller score.
        stale: Members that had this score or a larger one, and kept it.
    """

    added: int
    moved: int
    stale: int


@dataclass(frozen=True, slots=True)
class Scored:
    """A member of `Scores` and its score.

    Attributes:
        member: The member.
        score: Its score.
    """

    member: str
    score: float


name_publicly(globals(), "handfast")
