"""The lock before scripts: SETNX and EXPIRE to take it, WATCH and MULTI to give it up."""

from __future__ import annotations

import math
import secrets
import time
from typing import Literal

import redis
from redis.exceptions import WatchError

from handfast.classic.replies import text

__all__ = ["acquire_lock_with_timeout", "release_lock"]


def acquire_lock_with_timeout(
    conn: redis.Redis, lockname: str, acquire_timeout: float = 10, lock_timeout: float = 10
) -> str | Literal[False]:
    """Take ``lock:<lockname>`` within ``acquire_timeout`` seconds, for ``lock_timeout`` seconds.

    The identifier to release it with, or False when others had it all that time.

    Flaws: whoever dies between SETNX and EXPIRE leaves a lock without an end. Only the next loser repairs that, and only
    then do the ``lock_timeout`` seconds begin; with nobody waiting, the lock stays for ever. A loser takes two round
    trips to find that it lost. And, as with the Lua form, it polls, is unfair and counts whole seconds.
    Instead: ``hf.lock(lockname).acquire(timeout=...)``.
    """
    identifier = secrets.token_hex(16)
    key, seconds = f"lock:{lockname}", math.ceil(lock_timeout)
    end = time.monotonic() + acquire_timeout
    while not conn.setnx(key, identifier):
        if conn.ttl(key) == -1:  # there, and without an end
            conn.expire(key, seconds)
        if time.monotonic() >= end:
            return False
        time.sleep(0.001)
    conn.expire(key, seconds)
    return identifier


def release_lock(conn: redis.Redis, lockname: str, identifier: str | bytes) -> bool:
    """Give the lock up; False when it was no longer one's own.

    Flaws: three round trips (WATCH, GET, and MULTI to EXEC in one), all over again when somebody touched the key
    meanwhile, a loser's repair of the TTL included; nobody who waits is told. Instead: ``lease.release()``.
    """
    key = f"lock:{lockname}"
    with conn.pipeline() as pipe:
        while True:
            try:
                pipe.watch(key)  # type: ignore[no-untyped-call]  # the client library leaves it untyped
                held = pipe.get(key)
                if held is None or text(held) != text(identifier):
                    return False  # leaving the block unwatches
                pipe.multi()
                pipe.delete(key)
                pipe.execute()
            except WatchError:
                continue
            return True
