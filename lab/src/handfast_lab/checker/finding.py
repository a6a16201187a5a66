"""What a checker found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from handfast_lab.checker.history import Operation

__all__ = ["Finding", "told"]

FEW = 6
"""Operations that a text tells of: more of them explain nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be. As a text it is one line."""

    checker: str
    """Which promise is broken: ``holds``, ``order``, ``fences``, ``linearizability``, ``rest``, ``leaks``."""
    name: str
    """Of the lock, or of the key or the resource that it is about."""
    text: str
    operations: tuple[Operation, ...] = ()
    """Those that show it, first the one that should not have ended as it did."""

    def __str__(self) -> str:
        return f"{self.checker}: {self.name}: {self.text}"


def told(operations: Iterable[Operation]) -> str:
    """These operations in words, or the first few of them."""
    some = list(operations)
    words = ", ".join(map(_told, some[:FEW]))
    return words + (f", and {len(some) - FEW} more" if len(some) > FEW else "")


def _told(operation: Operation) -> str:
    returned = "?" if operation.returned is None else f"{operation.returned:.6f}"
    weight = f" of {operation.weight}" if operation.weight != 1 else ""
    limit = f" to {operation.limit}" if operation.kind == "resize" else ""
    fence = f" with fence {operation.fence}" if operation.fence is not None else ""
    times = f"{operation.invoked:.6f} .. {returned}"
    who = f"{operation.lease or 'it'} of {operation.client}"
    return f"{operation.kind}{weight}{limit} {who} ({times}: {operation.outcome}{fence})"
