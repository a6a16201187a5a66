"""The semaphore before scripts: whoever asks puts itself in, and takes itself out again if it finds itself too late.

The plain one decides by the clients' clocks who came first. The fair one counts instead, in two more keys: the ZSET
``<semname>:owner`` has the identifiers by a counter, ``<semname>:counter``; the one by time is left to say who has timed
out. Do not mix them: the fair one does not see the places of the other, nor of the Lua form, which needs none of this.
"""

from __future__ import annotations

import secrets
import time

import redis

from handfast.classic.replies import text
from handfast.classic.semaphores import release_semaphore
from handfast.classic.watch.locks import acquire_lock_with_timeout, release_lock

__all__ = [
    "acquire_fair_semaphore",
    "acquire_semaphore",
    "acquire_semaphore_with_lock",
    "refresh_fair_semaphore",
    "release_fair_semaphore",
    "release_semaphore",
]


def acquire_semaphore(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Take one of ``limit`` places, if one is free now: the identifier to release it with, else None.

    Places that were taken more than ``timeout`` seconds ago count as given up, and are.

    Flaws: the earliest clock wins. A client that is 10 ms slow comes before those who took the last places within 10 ms,
    and holds one too many; so does anybody where the holder's clock was ahead. A loser stands in the set until it has
    taken itself out: meanwhile it is in the way of others, and if it dies there, for ``timeout`` seconds. There is no
    refreshing. And all of the Lua form's flaws.
    Instead: ``hf.semaphore(semname, limit).acquire(timeout=...)``; `handfast.classic.acquire_semaphore` steals no place.
    """
    identifier, now = secrets.token_hex(16), time.time()
    with conn.pipeline() as pipe:
        pipe.zremrangebyscore(semname, "-inf", now - timeout)
        pipe.zadd(semname, {identifier: now})
        pipe.zrank(semname, identifier)
        rank = pipe.execute()[-1]
    if rank < limit:
        return identifier
    conn.zrem(semname, identifier)
    return None


def acquire_fair_semaphore(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Take one of ``limit`` places, if one is free now: the identifier to release it with, else None.

    Who came first is counted, so clocks only decide who has timed out, and may differ by a second or so.

    Flaws: the count and the place are taken in two steps. Who counted first and puts itself in last finds its number the
    smaller one, and takes the place that somebody else got in between: `acquire_semaphore_with_lock` closes this. Two
    round trips, three for a loser. ``<semname>:counter`` stays for ever.
    Instead: ``hf.semaphore(semname, limit).acquire(timeout=...)``, one round trip and fair in that who waits longest is
    next; `handfast.classic.acquire_semaphore` has no race either.
    """
    identifier, now = secrets.token_hex(16), time.time()
    owners = f"{semname}:owner"
    with conn.pipeline() as pipe:
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
    """Give the place up; False when it was no longer one's own.

    Flaw: nobody who would like it is told. Instead: ``lease.release()``, which hands the place to the next in line.
    """
    with conn.pipeline() as pipe:
        pipe.zrem(semname, identifier)
        pipe.zrem(f"{semname}:owner", identifier)
        return bool(pipe.execute()[0])


def refresh_fair_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Let the time of the place begin anew; False when it had timed out and somebody has thrown it out.

    Flaw: it finds out by putting itself in, so who had lost its place and dies here stands in the set for another
    ``timeout``. Instead: ``hf.semaphore(semname, limit)``, which renews by itself; `handfast.classic.refresh_semaphore`
    looks first.
    """
    if conn.zadd(semname, {text(identifier): time.time()}):  # added: it was not there any more
        release_fair_semaphore(conn, semname, identifier)
        return False
    return True


def acquire_semaphore_with_lock(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """`acquire_fair_semaphore`, one client at a time; also None when the lock ``lock:<semname>`` was busy for 10 ms.

    Flaws: the lock costs five round trips more, and the semaphore has the lock's flaws too. Where many ask, places stay
    free because the lock is busy.
    Instead: ``hf.semaphore(semname, limit).acquire(timeout=...)``, in one round trip and without a lock, as is
    `handfast.classic.acquire_semaphore`.
    """
    identifier = acquire_lock_with_timeout(conn, semname, acquire_timeout=0.01)
    if not identifier:
        return None
    try:
        return acquire_fair_semaphore(conn, semname, limit, timeout)
    finally:
        release_lock(conn, semname, identifier)
