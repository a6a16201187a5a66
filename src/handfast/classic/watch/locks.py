"""The lock without scripts: SETNX and EXPIRE to acquire it, WATCH and MULTI to release it."""

from __future__ import annotations

import math
import secrets
import time
from typing import Literal

import redis
from redis.exceptions import WatchError

from handfast.classic.replies import text
from handfast.classic.watch.pipelines import require_watch, watching

__all__ = ["acquire_lock_with_timeout", "release_lock"]

MAX_SECONDS = 9 * 10**15
"""The longest time that every server accepts for EXPIRE, in seconds."""


def acquire_lock_with_timeout(
    conn: redis.Redis, lockname: str, acquire_timeout: float = 10, lock_timeout: float = 10
) -> str | Literal[False]:
    """Acquire the lock ``lock:<lockname>``.

    Args:
        conn: The client.
        lockname: The name of the lock.
        acquire_timeout: Seconds to wait, 10 by default.
        lock_timeout: Seconds until the lock expires, 10 by default, from above 0 to 9e15; rounded up to whole seconds.

    Returns:
        The identifier for `release_lock`, or False if the lock was taken all that time.

    Raises:
        redis.exceptions.ResponseError: ``lock_timeout`` is out of range, as servers say it for the other form. EXPIRE
            would delete the lock at once, or be refused when the lock is there.

    """
    require_watch(conn)
    identifier = secrets.token_hex(16)
    key, seconds = f"lock:{lockname}", math.ceil(lock_timeout)
    if not 0 < seconds <= MAX_SECONDS:
        raise redis.ResponseError(
            f"lock_timeout must be above 0 and at most {MAX_SECONDS:,} seconds, not {lock_timeout!r}"
        )
    end = time.monotonic() + acquire_timeout
    while not conn.setnx(key, identifier):
        if conn.ttl(key) == -1:  # the lock exists without a TTL
            conn.expire(key, seconds)
        if time.monotonic() >= end:
            return False
        time.sleep(0.001)
    conn.expire(key, seconds)
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
    key = f"lock:{lockname}"
    with watching(conn) as pipe:
        while True:
            try:
                pipe.watch(key)
                held = pipe.get(key)
                if held is None or text(held) != text(identifier):
                    return False  # the end of the block sends UNWATCH
                pipe.multi()
                pipe.delete(key)
                pipe.execute()
            except WatchError:
                continue
            return True
