"""The lock as two scripts: nobody ever sees half of it."""

from __future__ import annotations

import math
import secrets
import time
from typing import Literal

import redis

from handfast.classic.script import load_file

__all__ = ["acquire_lock_with_timeout", "release_lock"]

_acquire, _release = load_file("lock_acquire"), load_file("lock_release")


def acquire_lock_with_timeout(
    conn: redis.Redis, lockname: str, acquire_timeout: float = 10, lock_timeout: float = 10
) -> str | Literal[False]:
    """Take ``lock:<lockname>`` within ``acquire_timeout`` seconds, for ``lock_timeout`` seconds.

    The identifier to release it with, or False when others had it all that time.

    Flaws: it polls every millisecond, so each waiter costs the server a thousand calls a second and a free lock stays
    free until somebody looks. It is unfair: whoever has just released is the first to look again. ``lock_timeout`` is
    rounded up to whole seconds and never renewed, and nothing tells a holder that its time was over. When the reply gets
    lost and redis-py asks again, the caller waits for itself.
    Instead: ``hf.lock(lockname).acquire(timeout=...)``, which waits in line and is woken.
    """
    identifier = secrets.token_hex(16)
    end = time.monotonic() + acquire_timeout
    while not _acquire(conn, [f"lock:{lockname}"], [identifier, math.ceil(lock_timeout)]):
        if time.monotonic() >= end:
            return False
        time.sleep(0.001)
    return identifier


def release_lock(conn: redis.Redis, lockname: str, identifier: str | bytes) -> bool:
    """Give the lock up; False when it was no longer one's own.

    Flaw: nobody who waits is told. Instead: ``lease.release()``, which hands the lock to the next in line.
    """
    return bool(_release(conn, [f"lock:{lockname}"], [identifier]))
