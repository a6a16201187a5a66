"""The data that the processes of the demo share: the one place where its keys are created, written and deleted.

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
from handfast.records import Rate

__all__ = ["LIMITER", "LOCKS", "RATE", "REPORT", "Shared", "new_namespace"]

LIFETIME_MS = 120_000
"""TTL of every key, for the case that the demo itself is killed before it deletes them."""

LOCKS = ("counter", "door", "killed", "frozen")
"""The names of the locks, at most one for each act."""

LIMITER, RATE = "service", Rate(5, 1.0)
"""The name of the limiter, and its rate."""

REPORT = "report"
"""The name of what is made once."""

VALUES = ("counter:free", "counter:locked", "signatures", "resource")
"""The keys beside those of the locks."""


def new_namespace() -> str:
    """Return a namespace that no other run has."""
    return f"handfast-demo-{secrets.token_hex(6)}"


class Shared:
    """Counters, a list to sign, and a resource that is guarded by fences, all through one client of redis-py."""

    def __init__(self, client: redis.Redis | redis.RedisCluster, namespace: str) -> None:
        self._client: Any = client  # its return types are those of both APIs at once
        self._namespace = namespace

    def increment(self, counter: str, think_s: float) -> None:
        """Read, wait, write: three steps that only a lock can make one."""
        seen = self.count(counter)
        time.sleep(think_s)
        self._client.set(self._key(f"counter:{counter}"), seen + 1, px=LIFETIME_MS)

    def count(self, counter: str) -> int:
        return int(self._client.get(self._key(f"counter:{counter}")) or 0)

    def sign(self, who: str) -> None:
        """Append a name to the list."""
        key = self._key("signatures")
        with self._client.pipeline() as pipe:
            pipe.rpush(key, who)
            pipe.pexpire(key, LIFETIME_MS)
            pipe.execute()

    def signatures(self) -> list[str]:
        names: list[str] = self._client.lrange(self._key("signatures"), 0, -1)
        return names

    def write(self, fence: int, text: str) -> bool:
        """Write to the resource unless a higher fence has written; return whether it was written.

        The comparison and the write are one step: WATCH makes the transaction fail after a write in between, and then the
        comparison is repeated. In SQL this is ``UPDATE ... WHERE fence <= :fence``.
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
        return str(self._client.hget(self._key("resource"), "text"))

    def delete_keys(self) -> None:
        """Delete every key of this run. Call it when all processes have ended.

        Repeated until there is nothing to delete: the last command of a killed process may arrive late.
        """
        parts = load("permit_acquire").header.keys
        keys = [KeySet(self._namespace, "lock", lock).key(part) for lock in LOCKS for part in parts]
        limiter = KeySet(self._namespace, "limiter", LIMITER)
        keys += map(limiter.key, ("queue", "waiting", "tombstones", f"window:{1000 * RATE.per:g}"))
        keys += map(KeySet(self._namespace, "once", REPORT).key, load("once_acquire").header.keys)
        keys += map(self._key, VALUES)
        for _ in range(10):
            if not self._client.unlink(*keys):
                return

    def _key(self, name: str) -> str:
        return f"{self._namespace}:{name}"
