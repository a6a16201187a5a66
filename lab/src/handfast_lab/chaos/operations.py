"""What users do with Handfast, written once for all trials and for both APIs: see `apis`.

`PRIMITIVES` makes what can be acquired. `Operations` prepares single calls, one `Call` each, which a trial then stops
at a point of its choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["LIMIT", "PRIMITIVES", "second"]

LIMIT = 3
"""Permits of a semaphore."""


def second(name: str) -> str:
    """Return the second name of a pair that is locked together."""
    return f"{name}-too"


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "lock": lambda client, name, **options: client.lock(name, **options),
    "rlock": lambda client, name, **options: client.rlock(name, **options),
    "semaphore": lambda client, name, **options: client.semaphore(name, LIMIT, **options),
    "reader": lambda client, name, **options: client.rwlock(name, **options).read(),
    "writer": lambda client, name, **options: client.rwlock(name, **options).write(),
    "lock_all": lambda client, name, **options: client.lock_all([name, second(name)], **options),
}
"""What can be acquired, by kind: functions of a client, a name and the options of the primitive."""
