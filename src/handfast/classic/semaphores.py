"""The semaphore as scripts, which count the permits and take one atomically.

A semaphore is a ZSET at ``semname``: identifiers by the time at which they were acquired or refreshed. These times are
read from the clients' clocks, in seconds since 1970, and decide which permits have timed out.
"""

from __future__ import annotations

import secrets
import time

import redis

from handfast.classic.script import load_file

__all__ = ["acquire_semaphore", "refresh_semaphore", "release_semaphore"]

_acquire, _refresh = load_file("semaphore_acquire"), load_file("semaphore_refresh")


def acquire_semaphore(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Acquire one of ``limit`` permits if one is free.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        limit: The number of permits.
        timeout: Seconds, 10 by default. Permits that were acquired or refreshed longer ago are removed.

    Returns:
        The identifier for `release_semaphore`, or None if no permit is free.

    """
    identifier, now = secrets.token_hex(16), time.time()
    return identifier if _acquire(conn, [semname], [identifier, limit, now, now - timeout]) else None


def release_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Release a permit.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        identifier: The result of `acquire_semaphore`.

    Returns:
        True if this call released the permit, False if the caller no longer held it.

    """
    return bool(conn.zrem(semname, identifier))


def refresh_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Restart the time of a permit.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        identifier: The result of `acquire_semaphore`.

    Returns:
        True if the permit was refreshed, False if it had timed out and was removed.

    """
    return bool(_refresh(conn, [semname], [identifier, time.time()]))
