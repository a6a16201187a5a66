"""Measure locks on the primaries of a cluster: the rate relative to one server, and the CPU time of a cycle on both sides.

A cycle is an acquire and its release. Processes make them under many names, which spread over the primaries, at three places in turn:

- one server, to which a client has plain sessions;
- a cluster of one primary, where the same calls go through the router: what differs is the cost of routing and of a server in
  cluster mode;
- a cluster of three.

All servers listen on the loopback interface, and the clusters have no replicas. An observer reads the CPU time of each server when
the counted period begins and when it ends, and each client that of its own process. Divided by the cycles they tell what a cycle
costs, also where clients and servers share too few cores for the rate to tell.

The Python frames of a call on a plain session and through the router are counted as in `handfast_lab.bench.frames`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, product
from statistics import median
from time import monotonic, process_time
from typing import Any, NamedTuple

import redis

from handfast import AsyncHandfast, Handfast
from handfast_lab.bench.figures import middle
from handfast_lab.bench.frames import count_asyncio, count_sync
from handfast_lab.bench.runner import ClientPool, in_turn
from handfast_lab.bench.worker import Job, Start, wait_until
from handfast_lab.chaos.clusters import HOST, Cluster, start_on_port

__all__ = [
    "LOADS",
    "PLACES",
    "SERVER",
    "THREE",
    "Frames",
    "Place",
    "Spread",
    "SpreadRow",
    "count_frames",
    "places",
    "run",
    "summarize",
]

SERVER, ONE, THREE = PLACES = "one server", "1 primary", "3 primaries"

ASYNC_CONTENDED = "asyncio, contended"
LOADS = "sync", "asyncio", ASYNC_CONTENDED
"""What each process does: a thread that goes through its names, a task for each name, or two tasks for each name, which
it shares with the other processes, so that each release hands the lock over."""


class Place(NamedTuple):
    """Where the locks are: the URL for clients, and one of each server."""

    url: str
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """One load at one place in one round."""

    round: int
    load: str
    place: str
    clients: int
    seconds: float
    cycles: int
    client_us: float
    """CPU time of a cycle in the clients, in microseconds."""
    server_us: tuple[float, ...]
    """The same on each server."""
    connections: tuple[int, ...]
    """On each server, of all clients together."""

    @property
    def rate(self) -> float:
        """Cycles per second."""
        return self.cycles / self.seconds


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """All rounds of one load at one place: medians, and the spread of the rate."""

    load: str
    place: str
    rate: float
    slowest: float
    fastest: float
    to_server: float | None
    """The rate divided by that of one server in the same round."""
    client_us: float
    server_us: float
    """On all servers together."""
    busiest_us: float
    """On the server that worked most."""
    connections: float
    """Of one client to each server."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Python frames of an acquire and of its release."""

    api: str
    place: str
    acquire: int
    release: int


class Used(NamedTuple):
    """What one client did in the counted period, and the CPU time that it took, in seconds."""

    cycles: int
    cpu_s: float


class ThreadJob(NamedTuple):
    """Acquire and release one lock after the other, on one thread."""

    url: str
    names: Sequence[str]

    def do(self, start: Start) -> Used:
        with Handfast(self.url) as client:
            locks = [client.lock(name) for name in self.names]
            for lock in locks:  # opens the connections
                lock.acquire().release()
            gc.collect()
            turn = cycle(locks)

            def work(until: float) -> int:
                done = 0
                while monotonic() < until:
                    next(turn).acquire().release()
                    done += 1
                return done

            schedule = start()
            wait_until(schedule.begin)
            work(schedule.go)
            before = process_time()
            return Used(work(schedule.until), process_time() - before)


class TasksJob(NamedTuple):
    """Acquire and release all locks at the same time, by so many tasks each."""

    url: str
    names: Sequence[str]
    tasks: int = 1

    def do(self, start: Start) -> Used:
        return asyncio.run(self._work(start))

    async def _work(self, start: Start) -> Used:
        done = 0

        async def once(lock: Any) -> None:
            lease = await lock.acquire()
            await lease.release()

        async def work(lock: Any, until: float) -> None:
            nonlocal done
            while monotonic() < until:
                await once(lock)
                done += 1

        async with AsyncHandfast(self.url) as client:
            locks = [client.lock(name) for name in self.names] * self.tasks
            await asyncio.gather(*map(once, locks))  # opens the connections
            gc.collect()
            schedule = start()
            await asyncio.sleep(schedule.begin - monotonic())
            tasks = [asyncio.create_task(work(lock, schedule.until)) for lock in locks]
            await asyncio.sleep(schedule.go - monotonic())
            cycles, cpu_s = done, process_time()
            await asyncio.sleep(schedule.until - monotonic())
            used = Used(done - cycles, process_time() - cpu_s)
            await asyncio.gather(*tasks)
            return used


class Look(NamedTuple):
    """What an observer saw of one server."""

    cpu_s: float
    connections: int


class Observe(NamedTuple):
    """Read the CPU time of each server during the counted period, and count the connections when it begins."""

    servers: Sequence[str]

    def do(self, start: Start) -> list[Look]:
        with ExitStack() as stack:
            conns: list[Any] = [stack.enter_context(redis.Redis.from_url(url)) for url in self.servers]
            _cpu_times(conns)
            schedule = start()
            wait_until(schedule.go)
            connections, before = [_ours(conn) for conn in conns], _cpu_times(conns)
            wait_until(schedule.until)
            after = _cpu_times(conns)
            return [Look(*look) for look in zip(map(float.__sub__, after, before), connections, strict=True)]


def _cpu_times(conns: Sequence[Any]) -> list[float]:
    found = [conn.info("cpu") for conn in conns]
    return [cpu["used_cpu_user"] + cpu["used_cpu_sys"] for cpu in found]


def _ours(conn: Any) -> int:
    return sum("handfast" in client.get("lib-name", "") for client in conn.client_list())


@contextmanager
def places() -> Iterator[Mapping[str, Place]]:
    """Start the servers."""
    with ExitStack() as stack:
        port, server = start_on_port()
        stack.enter_context(server)
        url = f"redis://{HOST}:{port}"
        found = {SERVER: Place(url, (url,))}
        for name, primaries in ((ONE, 1), (THREE, 3)):
            cluster = stack.enter_context(Cluster(primaries, replicas=0))
            found[name] = Place(cluster.url, tuple(f"redis://{HOST}:{port}" for port in cluster.ports))
        yield found


def run(
    where: Mapping[str, Place], loads: Sequence[str], *, clients: int, names: int, rounds: int, seconds: float
) -> Iterator[Spread]:
    """Yield the figures of each load at each place in each round. Raises RuntimeError if a client fails."""
    with ClientPool() as pool:
        for number, load in product(range(rounds), loads):
            for place in in_turn(tuple(where), number):
                url, servers = where[place]
                work = [_job(load, url, client, names) for client in range(clients)]
                jobs: list[Job[Any]] = [Observe(servers), *work]
                schedule, results, trouble = pool.do(jobs, seconds)
                if trouble:
                    raise RuntimeError(f"{load}, {place}: {trouble[0]}")
                looks, *used = results
                cycles = sum(one.cycles for one in used)
                yield Spread(
                    number,
                    load,
                    place,
                    clients,
                    schedule.until - schedule.go,
                    cycles,
                    1e6 * sum(one.cpu_s for one in used) / cycles,
                    tuple(1e6 * look.cpu_s / cycles for look in looks),
                    tuple(look.connections for look in looks),
                )


def _job(load: str, url: str, client: int, names: int) -> Job[Used]:
    if load == ASYNC_CONTENDED:
        return TasksJob(url, [f"shared:{number}" for number in range(names)], tasks=2)
    own = [f"order:{client}:{number}" for number in range(names)]
    return ThreadJob(url, own) if load == "sync" else TasksJob(url, own)


def summarize(found: Sequence[Spread]) -> list[SpreadRow]:
    """Return a row for each load and place."""
    rates = {(one.round, one.load): one.rate for one in found if one.place == SERVER}
    groups: dict[tuple[str, str], list[Spread]] = {}
    for one in found:
        groups.setdefault((one.load, one.place), []).append(one)
    return [
        SpreadRow(
            load,
            place,
            median(one.rate for one in groups[load, place]),
            min(one.rate for one in groups[load, place]),
            max(one.rate for one in groups[load, place]),
            middle(one.rate / rate for one in groups[load, place] if (rate := rates.get((one.round, load)))),
            median(one.client_us for one in groups[load, place]),
            median(sum(one.server_us) for one in groups[load, place]),
            median(max(one.server_us) for one in groups[load, place]),
            median(sum(one.connections) / len(one.connections) / one.clients for one in groups[load, place]),
        )
        for load, place in product(LOADS, PLACES)
        if (load, place) in groups
    ]


def count_frames(where: Mapping[str, Place]) -> list[Frames]:
    """Return the frames on a plain session and through the router."""

    async def on_loop(url: str) -> dict[str, list[str]]:
        async with AsyncHandfast(url) as client:
            return await count_asyncio(client)

    def in_thread(url: str) -> dict[str, list[str]]:
        with Handfast(url) as client:
            return count_sync(client)

    ways: dict[str, Callable[[str], dict[str, list[str]]]] = {
        "sync": in_thread,
        "asyncio": lambda url: asyncio.run(on_loop(url)),
    }
    cases = product(ways.items(), (SERVER, THREE))
    counts = ((api, place, way(where[place].url)) for (api, way), place in cases)
    return [Frames(api, place, len(frames["acquire"]), len(frames["release"])) for api, place, frames in counts]
