"""A process that runs a version of Handfast, driven through standard input: ``peer.py URL sync|asyncio SOURCE``.

Each line of the input is a number and an expression, which runs in a new thread. Each line of the output is the number and
the result, or behind a ``!`` the exception. Handfast is imported from the folder SOURCE.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
import threading
import time

import redis

url, api, source = sys.argv[1:]
sys.path.insert(0, source)

import handfast  # noqa: E402 -- from the folder that was just named

assert handfast.__file__.startswith(source), handfast.__file__

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
bare = redis.Redis.from_url(url)
client = {"sync": handfast.Handfast, "asyncio": handfast.AsyncHandfast}[api](url)
kept = {}
printing = threading.Lock()


def done(value):
    """Return a result, of asyncio once it is there."""
    return asyncio.run_coroutine_threadsafe(_awaited(value), loop).result(30) if inspect.isawaitable(value) else value


async def _awaited(value):
    return await value


def keep(key, value):
    """Keep a lease under a key and return the fence; None without a lease."""
    kept[key] = lease = done(value)
    return lease and lease.fence


def give(key):
    return done(kept.pop(key).release())


def counted(key):
    """Return a function to run under a lock: it increments a counter in two commands, and returns the old count."""

    def count():
        number = int(bare.get(key) or 0)
        time.sleep(random.random() / 5000)
        bare.set(key, number + 1, ex=60)
        return number

    return count


def crowded(key):
    """Return a function to run under a semaphore: it returns how many processes run it at the time."""

    def count():
        many = bare.incr(key)
        time.sleep(random.random() / 2000)
        bare.decr(key)
        return many

    return count


def work(makers, times):
    """Hold each object so many times, from three threads or tasks at once. Return the results of the functions, and the fences."""
    seen = [[] for _ in makers]

    def by_thread():
        for place, (make, inside) in [*enumerate(makers)] * times:
            with make() as lease:
                seen[place].append((inside(), lease.fence))

    async def by_task():
        for place, (make, inside) in [*enumerate(makers)] * times:
            async with make() as lease:
                seen[place].append((await asyncio.to_thread(inside), lease.fence))

    if api == "asyncio":

        async def all_tasks():
            await asyncio.gather(*(by_task() for _ in range(3)))

        done(all_tasks())
    else:
        threads = [threading.Thread(target=by_thread) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return seen


def _answer(number, expression):
    try:
        said = repr(eval(expression, globals()))
    except Exception as error:  # noqa: BLE001 -- the test is to see it
        said = f"!{type(error).__name__}: {error}"
    with printing:
        print(number, said, flush=True)


for line in sys.stdin:
    threading.Thread(target=_answer, args=line.rstrip("\n").split(" ", 1), daemon=True).start()
