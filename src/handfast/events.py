"""Events: the reports of a client to the functions given to `Handfast.on`.

An event has no token and no result, so a program may log it or send it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = [
    "Acquired",
    "Admitted",
    "Connected",
    "Event",
    "Found",
    "LossCause",
    "Lost",
    "NameEvent",
    "Operated",
    "OutageBegan",
    "OutageEnded",
    "Outcome",
    "Queued",
    "Refused",
    "Released",
    "RenewalFailed",
    "Wanted",
]

Outcome: TypeAlias = Literal["timeout", "busy", "full", "superseded", "cancelled", "error"]
"""Why a request got nothing. ``timeout``: others had the name for as long as the caller waited. ``busy``: it did not wait.
``full``: the queue was. ``superseded``: a later request took its place. ``cancelled``: its caller was cancelled or
interrupted, or its ``cancel`` was set. ``error``: anything else, such as a server that can't be reached."""

LossCause: TypeAlias = Literal["expired", "planned", "revoked", "server", "closed", "dropped"]
"""Why a lease was lost. ``expired``: its time was over. ``planned``: the same, of one that is not renewed. ``revoked``: an
operator or a later request took it. ``server``: the server no longer had it. ``closed``: its client was closed.
``dropped``: the program kept no reference to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events."""

    at: float
    """The moment, in seconds since 1970 by this machine's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameEvent(Event):
    """An event of one name."""

    kind: str
    """The kind of the object: a word of `Kind`, such as "lock" or "limiter"."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(NameEvent):
    """A request for a lease waits in the queue."""

    position: int
    """How many requests stood before this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired(NameEvent):
    """A lease was acquired, or adopted."""

    fence: int
    waited: float
    """Seconds from the call to the grant."""
    position: int | None
    """How many requests stood before this request, by the latest reply; None for a request that was not in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(NameEvent):
    """A request got nothing: no lease, no admission, no result."""

    outcome: Outcome
    waited: float
    """Seconds from the call to the end of the call."""
    position: int | None
    """How many requests stood before this request, by the latest reply; None for a request that was not in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(NameEvent):
    """A key of `once` had a record, so nothing ran."""

    outcome: str
    """How the recorded run ended: "done", "failed", "begun" or "unstored"."""
    waited: float
    """Seconds from the call to the record."""
    position: int | None
    """How many requests stood before this request, by the latest reply; None for a request that was not in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted(NameEvent):
    """A limiter has admitted a call."""

    cost: int
    """Of a limiter with metrics, what the call counts for in ``requests``, or 1."""
    waited: float
    """Seconds from the call to its admission."""
    exceeded: bool
    """Whether the call was above the rates: of a limiter with ``enforce=False``."""
    costs: Mapping[str, int] = field(default_factory=dict)
    """Of a limiter with metrics, what the call counts for in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(NameEvent):
    """A lease was released, or detached. Where the server can't be reached, the release goes on in the background."""

    fence: int
    held_for: float
    """Seconds since the grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(NameEvent):
    """A lease ended before it was released."""

    fence: int
    held_for: float
    """Seconds since the grant."""
    cause: LossCause
    reason: str
    """The cause in words, with the reason of an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(NameEvent):
    """A later request asks the holder to end: see `Lock.preempt`."""

    fence: int
    by: str
    """The label of the client that asks."""
    reason: str
    grace: float
    """Seconds that the holder has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalFailed(Event):
    """A renewal was refused or got no answer. The client tries again for as long as the lease lasts."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageBegan(Event):
    """Leases of this client can't be renewed."""

    leases: int
    """The number of leases."""
    ends_in: float
    """Seconds until the first of them ends."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageEnded(Event):
    """The leases are renewed again."""

    leases: int
    lasted: float
    """Seconds since the outage began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operated(NameEvent):
    """This client has written an act of an operator into the audit; see `Handfast.note`."""

    what: str
    """The act, such as "release"."""
    by: str
    """The label of this client."""
    why: str
    """The reason."""
    count: int | None
    """How many leases it concerned."""
    fence: int | None
    """Up to which fence leases were taken, or with `single` the fence of the lease."""
    rates: str | None = None
    """The rates that were set, or the limit of a budget; empty where each client brings its own again."""
    permits: int | None = None
    """The limit that was set."""
    duration: float | None = None
    """For how many seconds a name was put on hold or paused."""
    now: bool = False
    """Whether the holders were asked to end."""
    single: bool = False
    """Whether only the lease with this fence was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(Event):
    """A connection to the server was opened."""

    server: str
    """The URL of the server, without a password."""
