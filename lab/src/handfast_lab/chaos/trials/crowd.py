"""Put a crowd of waiters into one queue: what it costs the server, and what a full queue answers.

    R28  With 10,000 waiting tasks: the time of scripts in the server, from its slow log of every call, must stay below a
         millisecond at p99.9, and all waiters must acquire in order of arrival. The memory per waiter is measured in the
         client and in the server. A caller that finds `max_waiters` in the queue must get QueueFull and change nothing.

The crowd belongs to one client with one connection. It exists in asyncio only, since thousands of threads are
impractical.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import redis

from handfast import QueueFull
from handfast.testing import ServerController
from handfast_lab.bench import crowd
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R28",)
COUNT = 10_000
"""Waiters."""

BAR = 1000.0
"""Limit for p99.9 of a script's time, in microseconds."""

CROWDS = 3
"""Maximum number of crowds, until one stays below `BAR`: other load on the machine can only make scripts look slower.
"""

FULL, BEYOND = {"sync": 50, "asyncio": 1_000}, 500
"""Limit of the queue, by API, and the number of further callers."""

RETRY_FOR = 60.0
"""Seconds within which the queue must be formed and served."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the limits of other libraries' queues are not known."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run a crowd of `count` waiters (asyncio only), then fill a queue to its limit."""
    figures = _crowds(contender, count, seed) if contender.api == "asyncio" else []
    progress(count)
    return [*figures, _full(contender, count, seed)]


# --- the crowd


def _crowds(contender: Contender, count: int, seed: int) -> list[Figure]:
    """Return the figure of the worst order and that of the fastest scripts."""
    orders: list[Figure] = []
    best: dict[str, crowd.ScriptTimes] = {}
    for _ in range(CROWDS):
        order, scripts = _crowd(contender, count, seed)
        orders.append(order)
        for script in scripts:
            best[script.script] = min(script, best.get(script.script, script), key=lambda times: times.p999)
        if all(script.p999 < BAR for script in best.values()):
            break
    return [max(orders, key=lambda order: order.bad), _scripts(contender, list(best.values()), len(orders), seed)]


def _crowd(contender: Contender, count: int, seed: int) -> tuple[Figure, list[crowd.ScriptTimes]]:
    with ServerController(*crowd.logging_all(count)) as server:
        crowd.load_scripts(server.url)
        seen, trouble = crowd.run(server.url, "crowd", count)
        scripts = crowd.script_times(server.url)
    entered = seen.order if seen is not None else []
    inversions = crowd.inversions(entered)
    missing = count - len(entered)
    here = seen.grown / count if seen is not None and seen.grown is not None and count else 0.0
    order = Figure(
        id="R28",
        what="a crowd at one lock: order",
        contender=contender.name,
        tried=count,
        bad=inversions + missing + len(trouble),
        unit="inversions, or not granted",
        measured={
            "seconds for all": round(seen.seconds, 2) if seen is not None else 0.0,
            "connections": seen.connections if seen is not None else 0,
            "bytes a waiter, in the client": round(here),
        },
        seed=seed,
        examples=examples_of([*trouble, *([f"{missing} did not acquire"] if missing else [])]),
    )
    return order, scripts


def _scripts(contender: Contender, scripts: list[crowd.ScriptTimes], crowds: int, seed: int) -> Figure:
    slow = [f"{script.script}: p99.9 of {script.p999:g} µs" for script in scripts if script.p999 >= BAR]
    slow += [f"{script.script} was never called" for script in scripts if not script.calls]
    measured: dict[str, float | str] = {"crowds": crowds}
    for script in scripts:
        measured[f"{script.script} p50, µs"] = script.p50
        measured[f"{script.script} p99.9, µs"] = script.p999
        measured[f"{script.script} longest, µs"] = script.longest
    return Figure(
        id="R28",
        what="a crowd at one lock: time of scripts",
        contender=contender.name,
        tried=sum(script.calls for script in scripts),
        bad=len(slow),
        unit="scripts with a p99.9 of 1 ms or more",
        measured=measured,
        seed=seed,
        examples=examples_of(slow),
    )


# --- the full queue


def _full(contender: Contender, count: int, seed: int) -> Figure:
    api = api_of(contender)
    room, beyond = min(FULL[contender.api], count), min(BEYOND, count)
    wrong: list[str] = []
    with log_silenced(), ServerController() as server:
        each = api.run(_fill(api, server, room, beyond, wrong))
    return Figure(
        id="R28",
        what="max_waiters reached",
        contender=contender.name,
        tried=beyond + room,
        bad=len(wrong),
        unit="no QueueFull, or not served",
        measured={"waiters": room, "callers beyond the limit": beyond, "bytes a waiter, in the server": round(each)},
        seed=seed,
        examples=examples_of(wrong),
    )


async def _fill(api: Api, server: ServerController, room: int, beyond: int, wrong: list[str]) -> float:
    """Fill the queue, add callers beyond its limit, then serve it. Return the server memory per waiter, in bytes."""
    async with api.client(server.url) as holder, api.client(server.url) as waiters:
        lease = await settled(holder.lock("full", renew=False).acquire())
        empty = _memory(server)
        lock = waiters.lock("full", max_waiters=room)
        waiting = [api.start(partial(_through, lock)) for _ in range(room)]

        async def full() -> bool:
            return bool((await settled(holder.lock("full").status())).waiting >= room)

        if not await api.eventually(full, RETRY_FOR):
            wrong.append(f"the queue never had its {room} waiters")
        each = (_memory(server) - empty) / room
        before = _state(server)
        for number in range(beyond):
            try:
                late = await settled(waiters.lock("full", max_waiters=room).acquire(timeout=RETRY_FOR))
            except QueueFull:
                pass
            except Exception as error:  # noqa: BLE001 -- any other answer is wrong
                wrong.append(f"number {number} beyond the limit raised {error!r}")
            else:
                wrong.append(f"number {number} beyond the limit acquired: {late!r}")
        after = _state(server)
        if after != before:
            changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
            wrong.append(f"the refused callers changed {changed}")
        await settled(lease.release())
        wrong += await api.failures(waiting, RETRY_FOR)
    return each


async def _through(lock: Any) -> None:
    lease = await settled(lock.acquire(timeout=RETRY_FOR))
    await settled(lease.release())


def _memory(server: ServerController) -> int:
    """Return the memory of all keys, in bytes."""
    return sum(int(server.admin.memory_usage(key, samples=0) or 0) for key in server.admin.scan_iter(count=1000))


def _state(server: ServerController) -> dict[bytes, Any]:
    """Return the queue in order and the known tokens, without the ends of their wait-leases."""
    with redis.Redis.from_url(server.url) as raw:
        return {
            key: raw.zrange(key, 0, -1, withscores=True) if raw.type(key) == b"zset" else sorted(raw.hkeys(key))
            for key in raw.scan_iter(count=1000)
        }
