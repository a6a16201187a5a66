"""The semaphore as scripts: places are counted and taken in one step, so whoever asks first has it.

A semaphore is a ZSET at ``semname``: identifiers, each with the time at which it was acquired or refreshed. That time is
the clients', in seconds since 1970, and it decides whose place has timed out.
"""

from __future__ import annotations

import secrets
import time

import redis

from handfast.classic.script import load_file

__all__ = ["acquire_semaphore", "refresh_semaphore", "release_semaphore"]

_acquire, _refresh = load_file("semaphore_acquire"), load_file("semaphore_refresh")


def acquire_semaphore(conn: redis.Redis, semname: str, limit: int, timeout: float = 10) -> str | None:
    """Take one of ``limit`` places, if one is free now: the identifier to release it with, else None.

    Places that were taken or refreshed more than ``timeout`` seconds ago count as given up, and are.

    Flaws: the clocks are the clients'. One that is ahead throws others out early, one that is slow is thrown out early
    itself. (But 10 ms steal no place that still has its time, as they do in the first form.) It is the newcomer's
    ``timeout`` that ends a place, not its holder's, and the holder is not told. Nobody waits in line: one must poll. When
    the reply gets lost and redis-py asks again, the caller's own place may be the one that leaves it none.
    Instead: ``hf.semaphore(semname, limit).acquire(timeout=...)``, which goes by the server's clock and waits in line.
    """
    identifier, now = secrets.token_hex(16), time.time()
    return identifier if _acquire(conn, [semname], [identifier, limit, now, now - timeout]) else None


def release_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Give the place up; False when it was no longer one's own.

    Flaw: nobody who would like it is told. Instead: ``lease.release()``, which hands the place to the next in line.
    """
    return bool(conn.zrem(semname, identifier))


def refresh_semaphore(conn: redis.Redis, semname: str, identifier: str | bytes) -> bool:
    """Let the time of the place begin anew; False when it had timed out and somebody has thrown it out.

    Flaws: one must think of it, often enough and with a clock that is right: a slow one may shorten the time.
    Instead: ``hf.semaphore(semname, limit)``, which renews by itself and tells when the lease was lost.
    """
    return bool(_refresh(conn, [semname], [identifier, time.time()]))
