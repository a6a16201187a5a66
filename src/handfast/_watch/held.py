"""The names with leases among those that were found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from handfast.arguments import Kind
from handfast.records import LockStatus, NameStatus, OnceStatus

__all__ = ["SILENT_S", "HeldName", "held_names"]

SILENT_S = 25.0
"""A waiter that was not heard of for so long is frozen or dead: it asks every 20 s or more often."""


class HeldName(NamedTuple):
    """A `NameStatus` of a kind with leases."""

    kind: Kind
    name: str
    status: LockStatus
    recorded: OnceStatus | None


def held_names(found: Iterable[NameStatus]) -> list[HeldName]:
    """Return those names whose kinds have leases."""
    return [
        HeldName(one.kind, one.name, one.status, one.recorded) for one in found if isinstance(one.status, LockStatus)
    ]
