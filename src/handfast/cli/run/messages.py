"""What a run tells a human, and who has what it wanted, in words."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from handfast.cli.run.options import Order

if TYPE_CHECKING:
    from handfast import Holder, LockStatus

__all__ = ["say", "was_taken", "who_has"]

SHOWN = 5
"""How many holders are named."""

LISTED = 100
"""How many holders a status has at most."""


def say(message: str) -> None:
    """Tell a human. One who does not listen any more is no reason to fail."""
    with contextlib.suppress(OSError):
        click.echo(f"handfast: {message}", err=True)


def who_has(order: Order, status: LockStatus) -> str:
    """Why there was nothing to be had, going by a look at the server right afterwards."""
    if order.slots is not None:
        reason = _slots(order.name, status)
    elif order.shared or order.exclusive:
        reason = _sides(order, status)
    else:
        reason = f"{order.name!r} has been held by {_names(status.holders)}" if status.holders else ""
    if not reason and status.waiters:
        first = status.waiters[0]
        reason = f"{_label(first.label)} has waited for {order.name!r} for {first.waited_for:.0f} s and comes first"
    return reason or was_taken(order)


def was_taken(order: Order) -> str:
    """The same, where nothing is to be seen any more."""
    return f"{order.name!r} was taken"


def _slots(name: str, status: LockStatus) -> str:
    """Who has the slots, unless some are free: then those who stand in line are the reason."""
    if status.free or not status.holders:
        return ""
    taken, limit = sum(holder.weight for holder in status.holders), status.limit
    if taken > limit:  # by runs with a larger N, or before somebody made it smaller
        which = f"{taken} slots of {name!r} are taken and the limit is {limit}"
    elif limit > 1:
        which = f"all {limit} slots of {name!r} are taken"
    else:
        which = f"the slot of {name!r} is taken"
    return f"{which}: {_names(status.holders)}"


def _sides(order: Order, status: LockStatus) -> str:
    """Who writes or reads; readers keep other readers out only together with a writer that came first."""
    if any(holder.exclusive for holder in status.holders):
        return f"{order.name!r} has been held exclusively by {_names(status.holders)}"
    if not status.holders or not (order.exclusive or status.waiters):
        return ""
    reason = f"{order.name!r} has been shared by {_names(status.holders)}"
    if order.exclusive:
        return reason
    first = status.waiters[0]
    return f"{reason}; {_label(first.label)} has waited for {first.waited_for:.0f} s to have it exclusively"


def _names(holders: Sequence[Holder]) -> str:
    """Those who hold it, the one that has for longest first."""
    shown = sorted(holders, key=lambda holder: -holder.held_for)[:SHOWN]
    said = ", ".join(f"{_label(holder.label)}{_several(holder)} for {holder.held_for:.0f} s" for holder in shown)
    more = len(holders) - len(shown)
    if not more:
        return said
    return f"{said}, and {'at least ' if len(holders) == LISTED else ''}{more} more"


def _several(holder: Holder) -> str:
    """How many slots it has, if the library took more than one at once. A writer is not meant."""
    from handfast._engine.calls import MAX_PERMITS

    return f" ({holder.weight} slots)" if 1 < holder.weight < MAX_PERMITS else ""


def _label(label: str) -> str:
    return label if label.isprintable() else repr(label)
