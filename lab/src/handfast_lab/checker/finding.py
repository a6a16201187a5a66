"""The result type of the checkers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from handfast_lab.checker.history import Operation

__all__ = ["Finding", "describe"]

FEW = 6
"""Number of operations that the text of a finding lists; a longer list does not help the reader."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. `str` gives it as a single line."""

    checker: str
    """The violated guarantee: ``holds``, ``order``, ``fences``, ``linearizability``, ``rest``, ``leaks``; of limiters
    ``windows``, ``order``, ``once``; of keys of `once` ``results``, ``late``, ``runs``."""
    name: str
    """Name of the lock, key or resource concerned."""
    text: str
    operations: tuple[Operation, ...] = ()
    """The operations that show the violation; first the one whose outcome should have been different."""

    def __str__(self) -> str:
        return f"{self.checker}: {self.name}: {self.text}"


def describe(operations: Iterable[Operation]) -> str:
    """Describe these operations, or the first `FEW` of them, as text."""
    some = list(operations)
    words = ", ".join(map(_describe, some[:FEW]))
    return words + (f", and {len(some) - FEW} more" if len(some) > FEW else "")


def _describe(operation: Operation) -> str:
    returned = "?" if operation.returned is None else f"{operation.returned:.6f}"
    weight = f" of {operation.weight}" if operation.weight != 1 else ""
    limit = f" to {operation.limit}" if operation.kind == "resize" else ""
    fence = f" with fence {operation.fence}" if operation.fence is not None else ""
    times = f"{operation.invoked:.6f} .. {returned}"
    who = f"{operation.lease or 'it'} of {operation.client}"
    return f"{operation.kind}{weight}{limit} {who} ({times}: {operation.outcome}{fence})"
