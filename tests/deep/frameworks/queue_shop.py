"""What the programs of the page on task queues import as ``shop``: it notes who is inside, and waits where the test asks for it."""

from __future__ import annotations

import asyncio
import os
import time

from tests.deep.frameworks.protected import conn


def enters(what, fence):
    """Note an entry of this process, and whether another one is inside."""
    if conn.incr(f"{what}:inside") > int(conn.get(f"{what}:limit") or 1):
        conn.incr(f"{what}:overlaps")
    conn.rpush(f"{what}:fences", fence)
    conn.sadd(f"{what}:pids", os.getpid())


def leaves(what):
    conn.decr(f"{what}:inside")
    conn.incr(f"{what}:total")


def pull(shop, fence):
    enters(shop, fence)
    try:
        time.sleep(0.1)
        while conn.exists(f"{shop}:stays"):
            time.sleep(0.01)
    finally:
        leaves(shop)


async def pull_async(shop, fence):
    enters(shop, fence)
    try:
        await asyncio.sleep(0.1)
        while conn.exists(f"{shop}:stays"):  # noqa: ASYNC110 -- another process deletes it
            await asyncio.sleep(0.01)
    finally:
        leaves(shop)


def render(number):
    conn.incr(f"invoice:{number}")
    time.sleep(0.1)


async def render_async(number):
    conn.incr(f"invoice:{number}")
    await asyncio.sleep(0.1)
