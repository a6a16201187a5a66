"""The names with leases among those that were found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from handfast.arguments import Kind
from handfast.records import LockStatus, NameStatus, OnceStatus

__all__ = ["HeldName", "held_names"]


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
