"""Histories: the operations of all clients and their outcomes, recorded for the checkers.

An `Operation` is one call of a client, with the time at which it began and ended and its outcome. Times are seconds on
one clock that all clients of the history share: the monotonic clock of the machine, or the virtual clock of a
simulation. The recorder takes the time before it starts an operation and again after the operation has ended, so the
effect of the operation lies between the two.

Histories are stored as JSON lines, one operation each, so that other tools can check them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal

__all__ = ["Kind", "Operation", "Outcome", "read_history", "write_history"]

Kind = Literal["acquire", "try_acquire", "release", "lower", "revoke", "resize", "settle", "forget"]
"""``acquire`` waits, ``try_acquire`` does not. ``revoke`` forcibly takes away all leases of a name, or the one
with a fence. ``settle`` changes the cost of an admission of a limiter, ``forget`` deletes the record of a key of `once`."""

Outcome = Literal["granted", "found", "refused", "timeout", "released", "lost", "done", "failed", "pending"]
"""How the operation ended for its caller.

    granted   an acquire returned a lease, or was admitted
    found     an acquire of a key of `once` found a result
    refused   try_acquire returned none: the permits were held or waited for, or the queue was full
    timeout   acquire ran out of time or was cancelled, and its request was removed from the server
    released  release returned True
    lost      release returned False: the lease had ended before
    done      success, for the other kinds
    failed    the call raised an error; its effect on the server is unknown
    pending   the call never returned: the process died
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a client.

    ``lease`` identifies an attempt to acquire and ties its operations together; it is unique in the history.
    """

    client: str
    kind: Kind
    names: tuple[str, ...]
    lease: str
    invoked: float
    returned: float | None
    """None if the call never returned."""
    outcome: Outcome
    weight: int = 1
    """Number of permits of each name that the call requests, or that ``lower`` keeps; for a limiter the cost, of
    ``settle`` the new one.
    """
    limit: int = 1
    """Limit of each name that the caller passed, or that ``resize`` sets; a ``resize`` to 0 restores the limits of the
    requests.
    """
    fence: int | None = None
    """Fence of the grant; of a revoke of one lease, the fence of that lease."""
    deadline: float | None = None
    """Time until which the caller considered the lease valid: as known at the grant, and when the lease was released,
    lost or abandoned.
    """
    queued: float | None = None
    """Time by which an acquire was certainly in the queue for the last time: it kept that position until it was
    granted.

    None if that was not observed. A waiter loses its position and enqueues again when its connection breaks, when a
    grant expires before the waiter learns of it, and when it waits for several locks and does not answer a wake-up in
    time.
    """
    counted: tuple[int, ...] = ()
    """Instants of the server's clock, in microseconds, at which a window of a limiter was seen to have admitted the
    request."""

    value: str | None = None
    """Of a key of `once`, the result that an acquire has found or that a release is to record; None for none."""

    @property
    def is_certain(self) -> bool:
        """Whether the effect of the operation is known."""
        return self.outcome not in ("failed", "pending")


def write_history(operations: Iterable[Operation], file: IO[str]) -> None:
    """Write one line of JSON for each operation."""
    for operation in operations:
        file.write(json.dumps(asdict(operation), separators=(",", ":")) + "\n")


def read_history(lines: Iterable[str]) -> Iterator[Operation]:
    """Yield the operations that `write_history` wrote."""
    for line in lines:
        fields: dict[str, Any] = json.loads(line)
        tuples = {key: tuple(fields.get(key, ())) for key in ("names", "counted")}
        yield Operation(**fields | tuples)
