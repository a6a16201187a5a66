"""Handfast and its rivals, by name.

What is not installed is reported as that and nothing else: see `Contender.version`.
"""

from __future__ import annotations

import redis

from handfast_lab.chaos.contender import LEASE, AioClient, AioLock, Client, Contender, Lock, Wire
from handfast_lab.chaos.ours import OURS, OURS_AIO, held_or_wanted
from handfast_lab.chaos.rivals import RIVALS

__all__ = [
    "CONTENDERS",
    "LEASE",
    "OURS",
    "OURS_AIO",
    "AioClient",
    "AioLock",
    "Client",
    "Contender",
    "Lock",
    "Wire",
    "contender_named",
    "is_left",
]

CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in (OURS, OURS_AIO, *RIVALS)}
"""By name, in the order of the table."""


def contender_named(name: str) -> Contender:
    """That one. Raises KeyError, with the names that there are."""
    try:
        return CONTENDERS[name]
    except KeyError:
        raise KeyError(f"no contender {name!r}; there are {', '.join(CONTENDERS)}") from None


def is_left(contender: Contender, admin: redis.Redis, name: str) -> bool:
    """Whether anybody still has, or waits for, what has that name."""
    if contender.is_ours:
        return held_or_wanted(admin, name)
    return any(name in key for key in contender.left(admin))
