"""The lock as two scripts, each of which is atomic."""

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
    """Acquire the lock ``lock:<lockname>``.

    Args:
        conn: The client.
        lockname: The name of the lock.
        acquire_timeout: Seconds to wait, 10 by default.
        lock_timeout: Seconds until the lock expires, 10 by default; rounded up to whole seconds.

    Returns:
        The identifier for `release_lock`, or False if the lock was taken all that time.

    """
    identifier = secrets.token_hex(16)
    end = time.monotonic() + acquire_timeout
    while not _acquire(conn, [f"lock:{lockname}"], [identifier, math.ceil(lock_timeout)]):
        if time.monotonic() >= end:
            return False
        time.sleep(0.001)
    return identifier


def release_lock(conn: redis.Redis, lockname: str, identifier: str | bytes) -> bool:
    """Release the lock ``lock:<lockname>``.

    Args:
        conn: The client.
        lockname: The name of the lock.
        identifier: The result of `acquire_lock_with_timeout`.

    Returns:
        True if this call released the lock, False if the caller no longer held it.

    """
    return bool(_release(conn, [f"lock:{lockname}"], [identifier]))
