"""What a plan consists of: clients, the orders of their callers, and faults."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from handfast._engine.keys import KeySet

__all__ = ["ClientPlan", "Order", "Plan", "Target", "tag"]


class _Target(NamedTuple):
    kind: str
    """``lock``, ``semaphore``, ``read``, ``write``, or ``all`` for several locks at once."""
    names: tuple[str, ...]
    ttl_ms: int
    renew: bool
    on_lost: str
    limit: int = 1
    weight: int = 1


class Target(_Target):
    """What an order is about, and with which settings."""

    @property
    def name(self) -> str:
        """The names, as a text."""
        return ", ".join(self.names)

    @cached_property
    def tags(self) -> list[bytes]:
        """What the keys of each name have in common."""
        return [tag(self.kind, name).encode() for name in self.names]


class Order(NamedTuple):
    """One thing that a caller does."""

    verb: str
    """``acquire``, ``try``, ``revoke``, ``resize``, ``status`` or ``close``."""
    target: Target
    pause: float
    """Seconds before it."""
    timeout: float | None = None
    hold: float = 0.0
    extend_ms: int = 0
    """A ttl to extend the lease to while it is held; 0 for none."""
    downgrade: bool = False
    """Whether a writer goes on as a reader."""
    end: str = "release"
    """``release``, ``drop`` for a lease that is forgotten, or ``fail`` for a scope that ends with an exception."""
    in_scope: bool = True
    """Whether the lease is held in an ``async with``, or released by a call."""
    cancel_after: float | None = None
    """Seconds from its begin on after which it is cancelled, if it still goes on."""
    cancel_at: int = 0
    """Which of its awaits ends together with a cancellation; 0 for none."""
    limit: int = 0
    """For ``resize``; 0 lets the limits of the requests count again."""


class ClientPlan(NamedTuple):
    """One client."""

    response_timeout: float
    offset: float
    lagging: float
    """How often time passes between two turns of its event loop."""
    callers: list[list[Order]]


class Plan(NamedTuple):
    """Everything that a seed says."""

    kind: str
    names: tuple[str, ...]
    tags: tuple[str, ...]
    clients: list[ClientPlan]
    tempo: float
    faults: tuple[str, ...]
    rate: float
    most_faults: int
    quiet_at: float
    """When faults end at the latest."""
    scripts_known: bool
    """Whether the server knows all scripts from the beginning."""
    uniform: bool
    """Whether all agree on the limit of each name, all the time."""


def tag(kind: str, name: str) -> str:
    """Return what all keys of a name have in common."""
    kinds = {"all": "lock", "lock_all": "lock", "read": "rwlock", "write": "rwlock"}
    return KeySet("hf", kinds.get(kind, kind), name).tag
