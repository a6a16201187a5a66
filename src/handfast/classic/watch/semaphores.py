"""The semaphore without scripts: a client adds an identifier, and removes it if its rank is above the limit.

The plain version ranks clients by their clocks. The fair version ranks them by a counter, in two more keys: the ZSET
``<semname>:owner`` has the identifiers by their number, and ``<semname>:counter`` the last number; the ZSET by time
then only decides which permits have timed out. Do not mix the two: the fair version does not see permits of the plain
version, nor of the Lua version.
"""

from __future__ import annotations

import secrets
import time

import redis

from handfast.classic.semaphores import release_semaphore
from handfast.classic.watch.locks import acquire_lock_with_timeout, release_lock
from handfast.classic.watch.pipelines import watching

__all__ = [
    "acquire_fair_semaphore",
    "acquire_semaphore",
    "acquire_semaphore_with_lock",
    "refresh_fair_semaphore",
    "release_fair_semaphore",
    "release_semaphore",
]


def acquire_semaphore(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Acquire one of ``limit`` permits if one is free.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        limit: The number of permits.
        timeout: Seconds, 10 by default. Permits that were acquired  longer ago are removed.

    Returns:
        The identifier for `release_semaphore`, or None if no permit is free.

    """
    limit, identifier, now = int(limit), secrets.token_hex(16), time.time()
    with watching(conn) as pipe:
        pipe.zremrangebyscore(semname, "-inf", now - timeout)
        pipe.zadd(semname, {identifier: now})
        pipe.zrank(semname, identifier)
        rank = pipe.execute()[-1]
    if rank < limit:
        return identifier
    conn.zrem(semname, identifier)
    return None


def acquire_fair_semaphore(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Acquire one of ``limit`` permits if one is free, ranked by a counter.

    Clocks decide only which permits have timed out, so they may differ by a second or so.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        limit: The number of permits.
        timeout: Seconds, 10 by default. Permits that were acquired or refreshed longer ago are removed.

    Returns:
        The identifier for `release_fair_semaphore`, or None if no permit is free.

    """
    limit, identifier, now = int(limit), secrets.token_hex(16), time.time()
    owners = f"{semname}:owner"
    with watching(conn) as pipe:
        pipe.zremrangebyscore(semname, "-inf", now - timeout)
        pipe.zinterstore(owners, {owners: 1, semname: 0})
        pipe.incr(f"{semname}:counter")
        number = pipe.execute()[-1]

        pipe.zadd(semname, {identifier: now})
        pipe.zadd(owners, {identifier: number})
        pipe.zrank(owners, identifier)
        rank = pipe.execute()[-1]
    if rank < limit:
        return identifier
    release_fair_semaphore(conn, semname, identifier)
    return None


def release_fair_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Release a permit of the fair semaphore.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        identifier: The result of `acquire_fair_semaphore`.

    Returns:
        True if this call released the permit, False if the caller no longer held it.

    """
    with watching(conn) as pipe:
        pipe.zrem(semname, identifier)
        pipe.zrem(f"{semname}:owner", identifier)
        return bool(pipe.execute()[0])


def refresh_fair_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Restart the time of a permit of the fair semaphore.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        identifier: The result of `acquire_fair_semaphore`.

    Returns:
        True if the permit was refreshed, False if it had timed out and was removed.

    """
    if conn.zadd(semname, {identifier: time.time()}):  # type: ignore[type-var]  # it takes both  # added: the permit was lost
        release_fair_semaphore(conn, semname, identifier)
        return False
    return True


def acquire_semaphore_with_lock(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Acquire a permit with `acquire_fair_semaphore` while holding the lock ``lock:<semname>``.

    Args:
        conn: The client.
        semname: The key of the semaphore.
        limit: The number of permits.
        timeout: Seconds, 10 by default. Permits that were acquired or refreshed longer ago are removed.

    Returns:
        The identifier for `release_fair_semaphore`, or None if no permit is free, or the lock was busy for 10 ms.

    """
    identifier = acquire_lock_with_timeout(conn, semname, acquire_timeout=0.01)
    if not identifier:
        return None
    try:
        return acquire_fair_semaphore(conn, semname, limit, timeout)
    finally:
        release_lock(conn, semname, identifier)
