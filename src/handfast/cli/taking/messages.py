"""How a run describes who holds the name, for its messages on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from handfast.cli.durations import span
from handfast.cli.taking.options import Options

if TYPE_CHECKING:
    from handfast import Holder, LockStatus

__all__ = ["describe_conflict", "describe_taken"]

MAX_NAMED = 5
"""How many holders a message names."""

MAX_LISTED = 100
"""How many holders the library's status() lists at most."""


def describe_conflict(options: Options, status: LockStatus) -> str:
    """Say why the name could not be acquired, from a status read right afterwards."""
    if options.slots is not None:
        reason = _slots(options.name, status)
    elif options.shared or options.exclusive:
        reason = _sides(options, status)
    else:
        reason = f"{options.name!r} is held by {_names(status.holders)}" if status.holders else ""
    if not reason and status.waiters:
        first = status.waiters[0]
        reason = f"{first.label} is first in the queue of {options.name!r}, for {span(first.waited_for)}"
    return reason or describe_taken(options)


def describe_taken(options: Options) -> str:
    """Say that the name was taken, if the status does not show by which holder."""
    return f"{options.name!r} was taken"


def _slots(name: str, status: LockStatus) -> str:
    """Name the holders of the slots. With a free slot, return "": the reason is the queue then."""
    if status.free or not status.holders:
        return ""
    taken, limit = sum(holder.weight for holder in status.holders), status.limit
    if taken > limit:  # taken under a larger N, or before the limit was lowered
        which = f"{taken} slots of {name!r} are taken and the limit is {limit}"
    elif limit > 1:
        which = f"all {limit} slots of {name!r} are taken"
    else:
        which = f"the slot of {name!r} is taken"
    return f"{which}: {_names(status.holders)}"


def _sides(options: Options, status: LockStatus) -> str:
    """Name the writer or the readers. Readers keep another reader out only if a writer is ahead of it in the queue."""
    if any(holder.exclusive for holder in status.holders):
        return f"{options.name!r} is held exclusively by {_names(status.holders)}"
    if not status.holders or not (options.exclusive or status.waiters):
        return ""
    reason = f"{options.name!r} is shared by {_names(status.holders)}"
    if options.exclusive:
        return reason
    first = status.waiters[0]
    return f"{reason}; {first.label} has waited {span(first.waited_for)} to hold it exclusively"


def _names(holders: Sequence[Holder]) -> str:
    """List the holders, the longest-held lease first."""
    shown = sorted(holders, key=lambda holder: -holder.held_for)[:MAX_NAMED]
    names = ", ".join(
        f"{holder.label}{_several(holder)} for {span(holder.held_for)}{_rest(holder)}" for holder in shown
    )
    more = len(holders) - len(shown)
    if not more:
        return names
    return f"{names}, and {'at least ' if len(holders) == MAX_LISTED else ''}{more} more"


def _rest(holder: Holder) -> str:
    """Say how long a name stays taken whose holder has released it."""
    return f" (done, and taken for {span(holder.remaining)} more)" if holder.released else ""


def _several(holder: Holder) -> str:
    """Say how many slots it holds, if the library acquired several at once. A writer's weight is not shown."""
    from handfast._kinds import MAX_PERMITS

    return f" ({holder.weight} slots)" if 1 < holder.weight < MAX_PERMITS else ""
