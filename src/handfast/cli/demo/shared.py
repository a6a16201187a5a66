"""What the processes of the demo share: the one place where its keys are made, written and removed.

Every key is in the namespace of one run, has a TTL from its first write on, and is deleted at the end.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import Any

import redis

from handfast._engine.keys import KeySet
from handfast._engine.script import load

__all__ = ["LOCKS", "Shared", "new_namespace"]

LIFETIME_MS = 120_000
"""Of a key that nobody could delete, because the demo itself was killed."""

LOCKS = ("counter", "door", "killed", "frozen")
"""The names that are locked, one or none for each act."""

VALUES = ("counter:free", "counter:locked", "signatures", "resource")
"""The keys of our own."""


def new_namespace() -> str:
    """A namespace that no other run has."""
    return f"handfast-demo-{secrets.token_hex(6)}"


class Shared:
    """Counters, a list to sign, and a resource that is guarded by fences, all through one plain client."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client: Any = client  # its return types are those of two colours at once
        self._namespace = namespace

    def increment(self, counter: str, moment: float) -> None:
        """Read, think for a moment, write: three steps that nothing but a lock can make one."""
        seen = self.count(counter)
        time.sleep(moment)
        self._client.set(self._key(f"counter:{counter}"), seen + 1, px=LIFETIME_MS)

    def count(self, counter: str) -> int:
        """What a counter says."""
        return int(self._client.get(self._key(f"counter:{counter}")) or 0)

    def sign(self, who: str) -> None:
        """Put a name at the end of the list."""
        key = self._key("signatures")
        with self._client.pipeline() as pipe:
            pipe.rpush(key, who)
            pipe.pexpire(key, LIFETIME_MS)
            pipe.execute()

    def signatures(self) -> list[str]:
        """Who signed, in order."""
        names: list[str] = self._client.lrange(self._key("signatures"), 0, -1)
        return names

    def write(self, fence: int, text: str) -> bool:
        """Write to the resource, unless somebody with a higher fence already has.

        The comparison and the write are one step: WATCH makes the transaction fail when anybody wrote in between, and
        then the comparison is made again. A database would say ``UPDATE ... WHERE fence <= :fence``.
        """
        key = self._key("resource")
        with self._client.pipeline() as pipe:
            while True:
                with contextlib.suppress(redis.WatchError):
                    pipe.watch(key)
                    if fence < int(pipe.hget(key, "fence") or 0):
                        return False
                    pipe.multi()
                    pipe.hset(key, mapping={"fence": fence, "text": text})
                    pipe.pexpire(key, LIFETIME_MS)
                    pipe.execute()
                    return True

    def text(self) -> str:
        """What the resource holds."""
        return str(self._client.hget(self._key("resource"), "text"))

    def sweep(self) -> None:
        """Delete every key of this run. Call it when all processes have ended.

        Repeated until there was nothing to delete: the last command of a process that was killed may still have been
        on its way the first time.
        """
        parts = load("permit_acquire").header.keys
        keys = [KeySet(self._namespace, "lock", lock).key(part) for lock in LOCKS for part in parts]
        keys += map(self._key, VALUES)
        for _ in range(10):
            if not self._client.unlink(*keys):
                return

    def _key(self, name: str) -> str:
        return f"{self._namespace}:{name}"
