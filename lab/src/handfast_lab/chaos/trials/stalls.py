"""Stop a holder, a network or a server, and check that the others go on and that expired leases are known to be lost.

R10  A holder is stopped for longer than its lease, resumes and writes. Counted: fenced updates that are lost. Updates
     lost without a fence are reported.
R11  The same holder, with the server stopped as well. Counted: leases for which `lease.lost` is not True at once,
     without I/O.
R14  Live waiters wait for more than ten wait-leases, the time for which the server keeps a silent waiter. Counted:
     waiters that lose their queue position. The server's clock is moved forward for this.
R31  By how much an acquire exceeds its timeout: with another holder, over slow and silent links, and with a stopped
     server. Allowed are 50 ms, the time that the link accounts for, or that which a server has for a reply. One that
     does not answer raises the connection error, all others AcquireTimeout.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import redis

from handfast import AcquireTimeout
from handfast._engine.constants import WAIT_MS
from handfast._protocol.retry import MIN_REPLY_S
from handfast.testing import FaultProxy, ServerController, anything
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, duration, examples_of
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import Progress, Tick, one_by_one
from handfast_lab.chaos.writers import Task, Writer, write
from handfast_lab.children import ChildProcess, ProcessFailed
from handfast_lab.clocks import ClockedServer, find_compiler
from handfast_lab.rivals.contender import Contender
from handfast_lab.stored import read_stored

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R10", "R11", "R14", "R31")
COUNT = 40
"""Stops of a holder or a link, of each kind."""

TTL = 0.2
"""Lease duration of the stopped processes, in seconds."""

FROZEN = 4
"""Processes that are stopped together, where it is not one at a time."""

WAITERS = 16
WAIT_LEASES = 10
"""How long the waiters wait, in wait-leases."""

JUMP = 50.0
"""Seconds by which the server's clock is moved at once: less than the wait-lease of a waiter that has just polled."""

DELAY = 0.02
"""Delay of each command on the slow link, in seconds."""

SILENCE = 0.2
"""Socket timeout of the clients, in seconds."""

RETRY_FOR = 20.0
"""Seconds that the trial waits for a process or a waiter."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast, whose leases this trial inspects."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run all four parts with about `count` stops each."""
    chance, tick = random.Random(seed), one_by_one(progress)  # noqa: S311 -- timing, not security
    with log_silenced():
        figures = [_updates(contender, count, chance, tick), _resumed(contender, count, chance, tick)]
        if find_compiler() is not None:
            figures.append(_long_waits(contender, tick))
        figures += _deadlines(contender, count, chance, tick)
    return [replace(figure, seed=seed) for figure in figures]


# --- R10


def _updates(contender: Contender, count: int, chance: random.Random, tick: Tick) -> Figure:
    pauses = [(chance.uniform(0, 0.05), chance.uniform(1.2, 2) * TTL) for _ in range(count)]

    def freeze(writers: list[ChildProcess]) -> None:
        for awake, asleep in pauses:
            time.sleep(awake)
            process = chance.choice(writers)
            process.freeze()
            time.sleep(asleep)
            process.thaw()
            tick()

    task = Task(sum(map(sum, pauses)) + TTL, TTL, RETRY_FOR, disturb=freeze)
    with ServerController() as server, LockUsers(server.url, Writer) as users:
        total = write(users, contender, task)
    what = "a holder stopped for longer than its lease: fenced updates"
    return total.figure(contender, "R10", what, **{"times stopped": count})


# --- R11


def _resumed(contender: Contender, count: int, chance: random.Random, tick: Tick) -> Figure:
    wrong: list[str] = []
    took: list[float] = []
    with ServerController() as server, LockUsers(server.url, Writer) as users:
        for number in range(0, count, FROZEN):
            with _recording_failures(wrong):
                frozen = users.new(contender, FROZEN)
                for place, process in enumerate(frozen):
                    process.order("watch", f"watched-{number + place}", TTL)
                    process.expect("acquired", RETRY_FOR)
                time.sleep(chance.uniform(0, TTL))
                for process in frozen:
                    process.freeze()
                with server.paused():  # from here on the server answers no request
                    time.sleep(1.2 * TTL)
                    for process in frozen:
                        process.thaw()
                    for place, process in enumerate(frozen):
                        woke = process.expect("woke", RETRY_FOR)
                        took.append(woke.value["took"])
                        if not woke.value["lost"]:
                            wrong.append(f"watched-{number + place}: took its expired lease for valid")
                for process in frozen:
                    if process.expect("released", RETRY_FOR).value:
                        wrong.append("an expired lease was released as if it were valid")
                    users.discard(process)
                    tick()
    return Figure(
        id="R11",
        what="woken after the end of its lease, server stopped",
        contender=contender.name,
        tried=len(took),
        bad=len(wrong),
        unit="leases taken for valid",
        measured={
            "longest check, µs": duration(took, 1.0, "µs"),
            "median check, µs": duration(took, 0.5, "µs"),
        },
        examples=examples_of(wrong),
    )


# --- R14


def _long_waits(contender: Contender, tick: Tick) -> Figure:
    api, wrong = api_of(contender), list[str]()
    with ClockedServer() as server:
        waited = api.run(_wait_long(api, server, wrong))
    tick()
    return Figure(
        id="R14",
        what="live waiters, queued for ten wait-leases",
        contender=contender.name,
        tried=WAITERS,
        bad=len(wrong),
        unit="lost their position",
        measured={"waited by the server's clock, s": round(waited), "wait-lease, s": WAIT_MS / 1000},
        examples=examples_of(wrong),
    )


async def _wait_long(api: Api, server: ClockedServer, wrong: list[str]) -> float:
    """Let the waiters wait; return for how many seconds by the server's clock."""
    place = "{hf:lock:long}"
    entered: list[int] = []

    async def wait(lock: Any, number: int) -> None:
        lease = await settled(lock.acquire(timeout=6 * RETRY_FOR))
        entered.append(number)
        await settled(lease.release())

    def is_queued(number: int) -> bool:
        return len(read_stored(server.admin, place).queue) > number

    def all_fresh() -> bool:
        """Return whether every wait-lease lasts beyond the next clock jump."""
        stored = read_stored(server.admin, place)
        ends = [stored.records[token].mark for token in stored.queue if token in stored.records]
        return len(ends) >= WAITERS and min(ends) > stored.now + JUMP * 1e6

    async with api.client(server.url) as holder, api.client(server.url) as client:
        lease = await settled(holder.lock("long", ttl=86_400, renew=False).acquire())
        waiters = []
        for number in range(WAITERS):
            waiters.append(api.start(partial(wait, client.lock("long"), number)))
            await api.eventually(partial(is_queued, number), RETRY_FOR)
        begun, places = server.clock_offset, read_stored(server.admin, place).queue
        for _ in range(round(WAIT_LEASES * WAIT_MS / 1000 / JUMP) + 1):
            if not await api.eventually(all_fresh, RETRY_FOR):
                wrong.append(f"not all waiters have polled within {RETRY_FOR:g} s")
                break
            server.shift_clock(JUMP)
        waited = server.clock_offset - begun
        left = read_stored(server.admin, place).queue
        wrong += [
            f"number {number} changed its position"
            for number, (token, ticket) in enumerate(places.items())
            if left.get(token) != ticket
        ]
        await settled(lease.release())
        wrong += await api.failures(waiters, RETRY_FOR)
        if entered != sorted(entered):
            wrong.append(f"the order of the holds was {entered}")
    return waited


# --- R31


class _Link(NamedTuple):
    api: Api
    server: ServerController
    proxy: FaultProxy


@contextmanager
def _slow(proxy: FaultProxy) -> Iterator[None]:
    fault = proxy.delay(anything, seconds=DELAY, times=None)
    try:
        yield
    finally:
        fault.clear()


LINKS: dict[str, tuple[Callable[[_Link], AbstractContextManager[Any]], float, type[Exception]]] = {
    "held by others": (lambda _: contextlib.nullcontext(), 0.0, AcquireTimeout),
    "slow link": (lambda setup: _slow(setup.proxy), 4 * DELAY, AcquireTimeout),
    "byte by byte": (lambda setup: setup.proxy.dribbling(), 0.0, AcquireTimeout),
    "server stopped": (lambda setup: setup.server.paused(), MIN_REPLY_S, redis.TimeoutError),
    "nothing comes back": (lambda setup: setup.proxy.black_hole("to client"), MIN_REPLY_S, redis.TimeoutError),
}
"""By condition: how to impose it, the permitted excess over the timeout, in seconds (at least 50 ms in any case), and
the error."""


@dataclass
class _Overruns:
    error: type[Exception]
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _deadlines(contender: Contender, count: int, chance: random.Random, tick: Tick) -> list[Figure]:
    api = api_of(contender)
    figures = []
    for what, (link, allowed, error) in LINKS.items():
        seen = _Overruns(error)
        with ServerController() as server, FaultProxy(server.url, record=False) as proxy:
            setup = _Link(api, server, proxy)
            timeouts = [chance.uniform(0.03, 0.15) for _ in range(max(1, count // 3))]
            api.run(_time_out(setup, partial(link, setup), timeouts, seen))
        tick()
        figures.append(_overrun_figure(contender, what, max(0.05, allowed), seen))
    return figures


async def _time_out(
    setup: _Link, link: Callable[[], AbstractContextManager[Any]], timeouts: Sequence[float], seen: _Overruns
) -> None:
    api = setup.api
    async with api.client(setup.server.url) as holder:
        lock = holder.lock("held")
        lease = await settled(lock.acquire())
        with contextlib.suppress(AcquireTimeout):
            await settled(lock.acquire(timeout=0.001))  # load the scripts now: they are long and the link may be slow
        for timeout in timeouts:
            async with api.client(api.library.Redis.from_url(setup.proxy.url, socket_timeout=SILENCE)) as client:
                lock = client.lock("held")
                await api.eventually(partial(_is_connected, lock))
                with link():
                    begun = monotonic()
                    try:
                        stray = await settled(lock.acquire(timeout=timeout))
                    except seen.error:
                        seen.seconds.append(monotonic() - begun - timeout)
                    except Exception as error:  # noqa: BLE001 -- any other outcome is wrong
                        seen.wrong.append(f"{type(error).__name__}: {error}")
                    else:
                        seen.wrong.append("acquired a held lock")
                        await settled(stray.release())

                async def is_empty() -> bool:
                    return not (await settled(holder.lock("held").status())).waiting

                if not await api.eventually(is_empty):
                    seen.wrong.append("its queue entry remained")
        await settled(lease.release())


async def _is_connected(lock: Any) -> bool:
    try:
        await settled(lock.status())
    except redis.TimeoutError:  # the machine is busy
        return False
    return True


def _overrun_figure(contender: Contender, what: str, allowed: float, seen: _Overruns) -> Figure:
    seconds = sorted(seen.seconds)
    late = [f"{second * 1000:.0f} ms longer than asked" for second in reversed(seconds) if second > allowed]
    early = [f"{-second * 1000:.1f} ms too early" for second in seconds if second < 0]
    return Figure(
        id="R31",
        what=f"acquire with a timeout: {what}",
        contender=contender.name,
        tried=len(seconds) + len(seen.wrong),
        bad=len(late) + len(early) + len(seen.wrong),
        unit=f"off by more than {allowed * 1000:g} ms",
        measured={
            "median beyond the timeout, ms": duration(seconds, 0.5, "ms"),
            "longest beyond the timeout, ms": duration(seconds, 1.0, "ms"),
        },
        examples=examples_of(seen.wrong + late + early),
    )


@contextmanager
def _recording_failures(wrong: list[str]) -> Iterator[None]:
    try:
        yield
    except ProcessFailed as error:
        wrong.append(str(error))
