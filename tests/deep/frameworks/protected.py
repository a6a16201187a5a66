"""What the programs of this folder protect: a total that is read, and some time later written, by one at a time."""

from __future__ import annotations

import contextlib
import os
import time

import redis

URL = os.environ["HANDFAST_URL"]
conn = redis.Redis.from_url(URL, decode_responses=True)


@contextlib.contextmanager
def counted(what):
    """Count who is inside of a block, how often it was entered, and how often another was inside."""
    if conn.incr(f"{what}:inside") > 1:
        conn.incr(f"{what}:overlaps")
    total = int(conn.get(f"{what}:total") or 0)
    try:
        time.sleep(0.005)
        yield
    finally:
        conn.set(f"{what}:total", total + 1)
        conn.decr(f"{what}:inside")
