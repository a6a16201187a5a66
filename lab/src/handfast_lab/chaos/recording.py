"""What the workers of a history share: their plan, their recording and their clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from handfast_lab.chaos.apis import settled
from handfast_lab.checker.history import Operation

__all__ = ["HistoryPlan", "Recording", "SharedClient"]


class HistoryPlan(NamedTuple):
    """What the workers of one history do."""

    primitive: str
    names: tuple[str, ...]
    workers: int
    operations: int
    """Operations of all workers together; an acquire and a release are two."""
    ttl: float
    seed: int
    until: float
    """Moment of the monotonic clock at which the workers stop in any case, in seconds."""
    habits: frozenset[str] = frozenset()
    """``abandon``: now and then a worker drops a lease, holds one for too long, or closes the client with the lease
    held. ``cancel``: now and then it cancels an acquire. ``block``: a callback for a
    lost lease blocks its thread for longer than the ttl."""
    pause: float = 0.0
    """Mean time in seconds between two operations of a worker."""
    stay: float = 0.0
    """Mean time in seconds for which some leases are held; 0 for not at all."""
    first: int = 0
    """Number of the first worker."""


@dataclass
class Recording:
    """What the workers of one history recorded."""

    operations: list[Operation] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    """By lease, the token of its grant."""
    believed: set[str] = field(default_factory=set)
    """The leases that their holders took for valid until they released them."""
    faults: list[str] = field(default_factory=list)
    """Failures of the workers themselves: stuck ones, and exceptions from neither Handfast nor redis-py."""

    def add(self, other: Recording) -> None:
        """Add what workers of another process recorded at the same time."""
        self.operations = sorted(self.operations + other.operations, key=lambda one: one.invoked)
        self.tokens |= other.tokens
        self.believed |= other.believed
        self.faults += other.faults


class SharedClient:
    """A client that some workers share. When one of them deserts it, it is closed and replaced."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._workers = 0
        self.client = make()

    def enter(self) -> None:
        """Count one more worker."""
        with self._lock:
            self._workers += 1

    async def leave(self) -> None:
        """Count one worker less; the last one closes the client."""
        with self._lock:
            self._workers -= 1
            last = not self._workers
        if last:
            await settled(self.client.close())

    async def replace(self) -> None:
        """Replace the client and close the old one, even while other workers use it."""
        with self._lock:
            old, self.client = self.client, self._make()
        await settled(old.close())
