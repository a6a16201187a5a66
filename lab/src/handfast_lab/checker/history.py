"""What clients did and what they were told, as it is checked afterwards.

An `Operation` is one call of a client: from when to when it ran, and how it ended. Times are seconds on one clock that
all clients of the history share: the machine's monotonic clock, or the virtual one of a simulation. Whoever records
writes down the moment before an operation was begun and the moment after it had ended, so that whatever it did was done
in between.

Histories are written as JSON lines, one operation each, so that others can check them with tools of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal

__all__ = ["Kind", "Operation", "Outcome", "read_history", "write_history"]

Kind = Literal["acquire", "try_acquire", "release", "lower", "revoke", "resize"]
"""``acquire`` waits, ``try_acquire`` does not. ``revoke`` takes all leases of a name away by force."""

Outcome = Literal["granted", "refused", "timeout", "released", "lost", "done", "failed", "pending"]
"""How it ended for its caller.

    granted   an acquire gave a lease
    refused   try_acquire gave none: others held the permits or waited for them; or the line was full
    timeout   acquire ran out of time, or was cancelled: whatever it had asked for was taken back
    released  release said True
    lost      release said False: the lease was over before
    done      the other kinds: it did what it was to do
    failed    an error came out, and nobody knows what happened at the server
    pending   it never ended: its caller died
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. ``lease`` ties the operations of one attempt to acquire together; it is unique in its history."""

    client: str
    kind: Kind
    names: tuple[str, ...]
    lease: str
    invoked: float
    returned: float | None
    """None if it never returned."""
    outcome: Outcome
    weight: int = 1
    """Permits of each name that were asked for, or that ``lower`` keeps."""
    limit: int = 1
    """How many permits each name had for this caller, or has after a ``resize``; 0 lets requests say it again."""
    fence: int | None = None
    """Of a grant."""
    deadline: float | None = None
    """Until when its caller believed in the lease: at the grant, or when the lease was given up, lost or left alone."""
    queued: float | None = None
    """The moment by which an acquire certainly stood in line for the last time: it kept that place until it was let in.

    None where nobody saw that. A waiter comes to lose its place, and asks again, when its connection breaks, when it gets a
    grant that is over before it hears of it, and when it is rung for several locks and does not come in time."""

    @property
    def is_certain(self) -> bool:
        """Whether its effect is known."""
        return self.outcome not in ("failed", "pending")


def write_history(operations: Iterable[Operation], file: IO[str]) -> None:
    """Write one line of JSON for each."""
    for operation in operations:
        file.write(json.dumps(asdict(operation), separators=(",", ":")) + "\n")


def read_history(lines: Iterable[str]) -> Iterator[Operation]:
    """Read what `write_history` wrote."""
    for line in lines:
        fields: dict[str, Any] = json.loads(line)
        yield Operation(**fields | {"names": tuple(fields["names"])})
